package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	before := counters{origins: map[string]float64{"store": 10, "unavailable": 1}}
	after, err := parseCounters(strings.NewReader(`# HELP ratelimitd_decisions_total x
ratelimitd_decisions_total{domain="a",origin="store",rule="r",verdict="ok"} 70
ratelimitd_decisions_total{domain="b",origin="store",rule="r",verdict="over"} 30
ratelimitd_decisions_total{domain="a",origin="unavailable",rule="r",verdict="ok"} 11
ratelimitd_other{origin="store"} 1e9
go_memstats_mallocs_total 1.5e+06
`))
	if err != nil {
		t.Fatal(err)
	}
	share, all := after.share(before, "store")
	if share != 0.9 || all != 100 {
		t.Errorf("got %v of %v, want 0.9 of 100", share, all)
	}
	if after.mallocs != 1_500_000 {
		t.Errorf("got %v objects, want 1.5 million", after.mallocs)
	}
	if share, all := after.share(after, "store"); share != 0 || all != 0 {
		t.Errorf("nothing decided: got %v of %v, want 0 of 0", share, all)
	}
}

func TestCPUTime(t *testing.T) {
	t.Parallel()
	pid := os.Getpid()
	before, err := CPUTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		after, err := CPUTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("CPU time stands still while a test spins")
		}
	}
	if bytes, err := ResidentBytes(pid); err != nil || bytes < 1<<20 {
		t.Errorf("got %d bytes, %v, want more than a megabyte", bytes, err)
	}
	if _, err := CPUTime(1 << 30); err == nil {
		t.Error("got no error for a process that is not there")
	}
}
