package app

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// What a collection costs grows with what it must scan, and buckets of the embedded store hold no pointers: a table of a
// million is as cheap to collect as an empty one. So garbage may gather in proportion to what is live beside them, not
// to all of it, as GOGC has it: hundreds of megabytes would wait for the sake of buckets.
const (
	garbageLive  = 8         // bytes of garbage for each live byte that is no bucket's
	garbageLeast = 128 << 20 // bytes, where there is room: the heap of a service without buckets is a few megabytes
	garbageFull  = 64 << 20  // bytes, where there is none

	garbagePeriod = time.Second
)

// garbage sets how much of it may wait for a collection.
type garbage struct {
	limit   uint64        // on the memory of the process, in bytes
	buckets func() uint64 // bytes of them
	percent int           // set last; 0: none
	before  int           // what was set by others
}

// run follows the heap until ctx ends, and then sets what was set before.
func (g *garbage) run(ctx context.Context) {
	defer func() { debug.SetGCPercent(g.before) }()
	t := time.NewTicker(garbagePeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			g.follow()
		}
	}
}

// follow sets the percentage that suits the heap as the last collection left it, unless it is near the present one: each
// change stops the process for a moment.
func (g *garbage) follow() {
	want := g.suits(readHeap())
	switch {
	case g.percent == 0:
		g.before = debug.SetGCPercent(want)
	case want*10 > g.percent*11 || want*10 < g.percent*9:
		debug.SetGCPercent(want)
	default:
		return
	}
	g.percent = want
}

// suits returns the GOGC that lets garbage gather as it may, at most half of what the limit leaves but never less than
// garbageFull: past the limit it is the runtime that collects, and bounds what that costs.
func (g *garbage) suits(h heap) int {
	scanned := h.live - min(h.live, g.buckets())
	half := (g.limit - min(g.limit, h.live)) / 2
	wait := min(max(garbageLeast, garbageLive*scanned), max(garbageFull, half))
	const smallest = 4 << 20 // a heap below 4 MiB × GOGC ÷ 100 is not collected at all
	return int(max(1, wait*100/max(smallest, h.live+h.roots)))
}

// heap is what the last collection found, in bytes. Before the first all is zero.
type heap struct {
	live  uint64 // objects
	roots uint64 // stacks and globals, which GOGC counts beside them
}

func readHeap() heap {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	var bytes [3]uint64
	for i := range samples {
		if samples[i].Value.Kind() == metrics.KindUint64 { // else a later Go no longer knows it
			bytes[i] = samples[i].Value.Uint64()
		}
	}
	return heap{live: bytes[0], roots: bytes[1] + bytes[2]}
}
