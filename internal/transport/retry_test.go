package transport

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

func denied(wait time.Duration) *engine.Status {
	return &engine.Status{Over: true, HasLimit: true, RetryAfter: wait}
}

// asks is a request of one descriptor for each value.
func asks(values ...string) *call {
	c := &call{req: engine.Request{Domain: "shop"}}
	for _, v := range values {
		c.req.Descriptors = append(c.req.Descriptors, engine.Descriptor{Entries: []rule.Entry{{Key: "user", Value: v}}})
	}
	return c
}

// TestC20RetryAfterRoundsUp holds case C20: a denial never says 0, and every wait is rounded up.
func TestC20RetryAfterRoundsUp(t *testing.T) {
	t.Parallel()
	a := newAnswerer(Options{})
	tests := map[time.Duration]int64{
		0: 1, 1: 1, 300 * time.Millisecond: 1, 500 * time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, time.Hour: 3600,
	}
	for wait, want := range tests {
		if got, ok := a.retryAfter(asks("u"), denied(wait), noon); got != want || !ok {
			t.Errorf("wait %v: got %d, %t, want %d, true", wait, got, ok, want)
		}
	}
}

func TestRetryAfterAbsent(t *testing.T) {
	t.Parallel()
	for _, jitter := range []bool{false, true} {
		a := newAnswerer(Options{RetryJitter: jitter})
		if got, ok := a.retryAfter(asks("u"), denied(bucket.Never), noon); ok {
			t.Errorf("a wait that never ends: got %d, want none", got)
		}
		if got, ok := a.retryAfter(asks("u"), &engine.Status{HasLimit: true}, noon); ok {
			t.Errorf("not refused: got %d, want none", got)
		}
	}
}

func TestRetryAfterOfAnOutage(t *testing.T) {
	t.Parallel()
	a := newAnswerer(Options{})
	for wait, want := range map[time.Duration]int64{bucket.Never: 5, 0: 5, time.Second: 5, time.Minute: 60} {
		s := denied(wait)
		s.Unpaid = true
		if got, ok := a.retryAfter(asks("u"), s, noon); got != want || !ok {
			t.Errorf("wait %v: got %d, %t, want %d, true", wait, got, ok, want)
		}
	}
}

func TestRetryAfterSpreadBounds(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]time.Duration{
		0:                      time.Second,
		time.Second:            time.Second,
		10 * time.Second:       time.Second,
		time.Minute:            6 * time.Second,
		5 * time.Minute:        30 * time.Second,
		3650 * 24 * time.Hour:  30 * time.Second,
		15*time.Second + 1:     1500 * time.Millisecond,
		100 * time.Millisecond: time.Second,
		299 * time.Second:      29900 * time.Millisecond,
	} {
		if got := spread(wait); got != want {
			t.Errorf("spread of %v: got %v, want %v", wait, got, want)
		}
	}
	a := newAnswerer(Options{RetryJitter: true})
	for _, wait := range []time.Duration{0, 1, time.Second, time.Minute, time.Hour} {
		low, high := max(ceilSeconds(wait), 1), max(ceilSeconds(wait+spread(wait)), 1)
		for i := range 1000 {
			got, ok := a.retryAfter(asks(fmt.Sprint(i)), denied(wait), noon)
			if !ok || got < low || got > high {
				t.Fatalf("wait %v: got %d, %t, want %d to %d", wait, got, ok, low, high)
			}
		}
	}
}

// TestRetryAfterSpreadsAHerd holds that 10,000 clients refused at one instant do not come back in one second: no second
// of the spread gets more than twice its share.
func TestRetryAfterSpreadsAHerd(t *testing.T) {
	t.Parallel()
	const clients = 10_000
	a := newAnswerer(Options{RetryJitter: true})
	for _, wait := range []time.Duration{time.Minute, time.Hour} {
		bins := map[int64]int{}
		for i := range clients {
			got, _ := a.retryAfter(asks(fmt.Sprintf("10.0.%d.%d", i/256, i%256), "site"), denied(wait), noon)
			bins[got]++
		}
		mean := clients / int(spread(wait)/time.Second)
		for second, n := range bins {
			if n > 2*mean {
				t.Errorf("wait %v: %d clients return after %d s, want at most %d", wait, n, second, 2*mean)
			}
		}
		if got, want := len(bins), int(spread(wait)/time.Second); got < want {
			t.Errorf("wait %v: spread over %d seconds, want %d", wait, got, want)
		}
	}
}

// TestRetryAfterCannotBeDrawnAgain holds that a client that asks again is told the same within an epoch, on any node.
func TestRetryAfterCannotBeDrawnAgain(t *testing.T) {
	t.Parallel()
	a, other := newAnswerer(Options{RetryJitter: true}), newAnswerer(Options{RetryJitter: true})
	wait := 300 * time.Second
	first, _ := a.retryAfter(asks("u1"), denied(wait), noon)
	for i := range 100 {
		now := noon.Add(time.Duration(i) * spreadEpoch / 100)
		if got, _ := other.retryAfter(asks("u1"), denied(wait), now); got != first {
			t.Fatalf("asked again %v later: got %d, want %d", now.Sub(noon), got, first)
		}
	}
	later := map[int64]bool{}
	for i := range 20 {
		got, _ := a.retryAfter(asks("u1"), denied(wait), noon.Add(time.Duration(i)*spreadEpoch))
		later[got] = true
	}
	if len(later) < 2 {
		t.Errorf("20 epochs: got the same wait in all, want different ones")
	}
}

func TestRequestHashTellsRequestsApart(t *testing.T) {
	t.Parallel()
	one := func(domain string, descriptors ...[]rule.Entry) *engine.Request {
		r := &engine.Request{Domain: domain}
		for _, e := range descriptors {
			r.Descriptors = append(r.Descriptors, engine.Descriptor{Entries: e})
		}
		return r
	}
	e := func(k, v string) rule.Entry { return rule.Entry{Key: k, Value: v} }
	requests := []*engine.Request{
		one("a"), one("b"), one("a", nil), one("a", nil, nil),
		one("a", []rule.Entry{e("k", "v")}), one("a", []rule.Entry{e("kv", "")}), one("a", []rule.Entry{e("", "kv")}), one("ak", []rule.Entry{e("", "v")}),
		one("a", []rule.Entry{e("k", "v"), e("l", "w")}), one("a", []rule.Entry{e("k", "v")}, []rule.Entry{e("l", "w")}),
	}
	seen := map[uint64]int{}
	for i, r := range requests {
		h := requestHash(r, 1)
		if j, ok := seen[h]; ok {
			t.Errorf("requests %d and %d have one hash", j, i)
		}
		seen[h] = i
	}
}
