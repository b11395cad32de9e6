// Package servertls hides the certificate that a port shows and the callers it admits: where they are read from, and
// that they are read again when they are rotated.
//
// Main types: Options, and Server, whose Config is for a listener and whose Run follows the files. It opens no port.
package servertls
