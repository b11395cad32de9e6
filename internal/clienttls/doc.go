// Package clienttls hides how a client's side of TLS is made of files: whom it trusts, and what it shows.
//
// Main type: Files, whose Config reads them. It connects to nothing, and follows nothing: who wants what was rotated to be
// used asks for a Config for each connection.
package clienttls
