package engine

import (
	"sync"
	"testing"
)

// Of many who count the first refusal of a rule, none is lost.
func TestRareCountersAreMadeOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	for range 100 {
		c := &newRuleMetrics("shop", "shop.user", []string{"hour"}).static.limits[0]
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { c.rarely().over.Add(1) })
		}
		wg.Wait()
		if got := c.rarely().over.Load(); got != n {
			t.Fatalf("got %d hits over, want %d", got, n)
		}
	}
}
