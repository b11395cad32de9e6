package main

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// A hot key that is over its limit costs Redis nothing: what was denied a moment ago is denied from memory. Where callers
// may give hits back, it asks once a second.
func TestHotKeyOverItsLimitAsksNobody(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
defaults: {algorithm: fixed_window}
descriptors:
  - {key: final, rate_limit: {unit: year, requests_per_unit: 2, refunds: false}}
  - {key: refunded, rate_limit: {unit: year, requests_per_unit: 2}}
`
	s := startServer(t, rules, "--redis-url", redistest.Start(t).URL(), "--redis-timeout", "2s", "--response-metadata")
	s.await(t, "key secret read from Redis")
	client := clients(t, s, 1)[0]
	const asked = "ratelimitd_redisstore_request_duration_seconds_count{"
	for _, key := range []string{"final", "refunded"} {
		if granted := grantedOf(t, client, 3, descriptor(key, "hot", -1)); granted != 2 {
			t.Fatalf("%s: got %d granted of 3, want 2", key, granted)
		}
		before, began := s.metric(t, asked), time.Now()
		for range 1000 {
			if a := callOnce(t.Context(), client, descriptor(key, "hot", -1)); a.err != nil || a.ok {
				t.Fatalf("%s: got %+v, want it denied", key, a)
			}
		}
		most := 1.0 // a process that begins to follow what operators do forgets everything once
		if key == "refunded" {
			most += 1 + time.Since(began).Seconds()
		}
		if got := s.metric(t, asked) - before; got > most {
			t.Errorf("%s: got %v calls of Redis for 1,000 denials, want %v at most", key, got, most)
		}
	}
	if got := s.metric(t, "ratelimitd_limiter_denied_total"); got < 1900 {
		t.Errorf("got %v denied from memory, want nearly all 2,000", got)
	}
	// A dearer charge is denied as well; another key, and a look, are none of it.
	if a := callOnce(t.Context(), client, descriptor("final", "hot", 2)); a.ok || a.origin != "denied_cache" {
		t.Errorf("a dearer charge: got %+v, want it denied from memory", a)
	}
	if a := callOnce(t.Context(), client, descriptor("final", "cold", -1)); !a.ok || a.origin != "store" {
		t.Errorf("another key: got %+v, want it granted by Redis", a)
	}
}
