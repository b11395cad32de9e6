package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGarbageFollowsWhatIsScanned(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		name                 string
		live, buckets, limit uint64
		want                 uint64 // garbage that may gather
	}{
		{"nothing yet", 0, 0, 20 * gib, 128 * mib},
		{"a small service", 8 * mib, 0, 20 * gib, 128 * mib},
		{"a million buckets", 110 * mib, 90 * mib, 20 * gib, 160 * mib},
		{"buckets since the last collection", 100 * mib, 300 * mib, 20 * gib, 128 * mib},
		{"a hundred thousand rules", 200 * mib, 10 * mib, 20 * gib, 8 * 190 * mib},
		{"many rules in a small container", 200 * mib, 10 * mib, 500 * mib, 150 * mib},
		{"a small container", 10 * mib, 0, 230 * mib, 110 * mib},
		{"a tiny container", 10 * mib, 0, 110 * mib, 64 * mib},
		{"a full container", 450 * mib, 10 * mib, 460 * mib, 64 * mib},
		{"past the limit", 500 * mib, 10 * mib, 460 * mib, 64 * mib},
	} {
		g := garbage{limit: c.limit, buckets: func() uint64 { return c.buckets }}
		want := int(c.want * 100 / max(4*mib, c.live+mib))
		if got := g.suits(heap{c.live, mib}); got != want {
			t.Errorf("%s: got GOGC %d, want %d", c.name, got, want)
		}
	}
}

// The names by which the runtime tells of its heap may change; the figures would then be 0 for ever.
func TestGarbageReadsTheHeap(t *testing.T) { // not parallel: the percentage is the process's
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)

	const size = 256 << 20
	buckets := make([]byte, size)
	buckets[0] = 1
	runtime.GC()
	if h := readHeap(); h.live < size || h.roots == 0 {
		t.Errorf("with 256 MiB alive: got %+v", h)
	}
	g := garbage{limit: 20 << 30, buckets: func() uint64 { return size }}
	g.follow()
	if got := debug.SetGCPercent(100); got != g.percent || got >= 100 {
		t.Errorf("with 256 MiB of buckets: got GOGC %d set, want %d, below 100", got, g.percent)
	}
	debug.SetGCPercent(g.percent)
	g.percent += g.percent / 20
	near := g.percent
	g.follow()
	if g.percent != near {
		t.Errorf("near what is set: got GOGC %d, want it left at %d", g.percent, near)
	}
	runtime.KeepAlive(buckets)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.run(ended)
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("after the end: got GOGC %d, want 100 as before", got)
	}
}
