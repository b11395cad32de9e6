package redisstore

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

func TestErrandSendsOnceWhatIsAlike(t *testing.T) {
	t.Parallel()
	a := &call{charges: 2, keys: []string{"a", "b"}, request: "two"}
	b := &call{charges: 2, keys: []string{"c", "d"}, request: "two"}
	c := &call{charges: 1, keys: []string{"b"}, request: "one"}
	var e errand
	for _, tt := range []struct {
		name  string
		calls []*call
		want  []string
	}{
		{"one", []*call{a}, []string{"evalsha", scriptHash, "2", "a", "b", "\x01", "", "two"}},
		{"the same of other keys", []*call{a, b}, []string{"evalsha", scriptHash, "4", "a", "b", "c", "d", "\x01\x01", "", "two"}},
		{"another of the same key", []*call{a, c, a}, []string{
			"evalsha", scriptHash, "2", "a", "b", "\x01\x02\x01", "\x01\x02\x02\x01\x02", "two", "one",
		}},
	} {
		e.pack(tt.calls)
		if diff := cmp.Diff(tt.want, e.words()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
		e.clear()
	}
	if most := tuned.charges - 1 + store.MaxCharges; most > 255 {
		t.Errorf("a call may have %d charges: their numbers are a byte each", most)
	}
}
