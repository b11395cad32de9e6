package config

import (
	"slices"
	"testing"
)

func TestMountPointsOfThisProcess(t *testing.T) {
	t.Parallel()
	if got := mountPoints(); !slices.Contains(got, "/") {
		t.Errorf("got %v, want / in it: is /proc mounted?", got)
	}
}
