//go:build soak

package config

// churnVersions is how many versions TestChurn publishes: no more than the audit log keeps, and the last one is good.
const churnVersions = 99_999
