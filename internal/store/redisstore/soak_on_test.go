//go:build soak

package redisstore_test

// soak says that tests run in their long form.
const soak = true
