package engine_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
)

func TestGrant(t *testing.T) {
	t.Parallel()
	e := newEngine(t, `
domain: shop
defaults: {refunds: false}
descriptors:
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: window, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: fixed_window}}
  - {key: log, rate_limit: {unit: hour, requests_per_unit: 10, algorithm: sliding_log}}
`, engine.Options{})
	const request = "shop | [bucket=x] [window=x] [log=x]"
	decide(t, e, request+" | hits=8")
	for _, tt := range []struct {
		hits int64
		want string // left after one more
	}{
		{3, "OK {OK r4, OK r4, OK r4}"},
		{0, "OK {OK r9, OK r9, OK r9}"},
		{100, "OK {OK r9, OK r9, OK r9}"},
	} {
		granted, err := e.Grant(t.Context(), parse(t, request), tt.hits)
		if err != nil || len(granted) != 3 {
			t.Fatalf("grant %d: got %+v, %v", tt.hits, granted, err)
		}
		if got := shorthand.FormatAnswer(decide(t, e, request)); got != tt.want {
			t.Errorf("after %d hits given back: got %s, want %s", tt.hits, got, tt.want)
		}
	}
	if granted, err := e.Grant(t.Context(), parse(t, "shop | [nothing=x]"), 1); err != nil || granted != nil {
		t.Errorf("no bucket: got %+v, %v", granted, err)
	}
}
