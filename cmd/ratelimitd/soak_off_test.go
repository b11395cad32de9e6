//go:build !soak

package main

// soak says that tests run in their long form, for a machine that does nothing else.
const soak = false
