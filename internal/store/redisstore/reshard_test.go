package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// R8: slots move from one master to another, and to one that had none, while charges are taken on their keys: each is
// booked once. The requests are on one key, on two of one slot, and on two of two slots.
func TestResharding(t *testing.T) {
	t.Parallel()
	const slots, limit = 6, 1 << 30
	cluster := redistest.StartCluster(t, redistest.Setup{}, 3, 1, false)
	s := openCluster(t, redisstore.Options{URL: cluster.URL(), Timeout: patient})
	admin := cluster.Masters[0].Client()
	bySlot := make(map[int][]store.Charge) // two keys a slot
	full := 0
	for i := 0; full < slots; i++ {
		c := charge(t, fmt.Sprint("resharding ", i), bucket.Config{Algorithm: bucket.FixedWindow, Hits: limit, Unit: bucket.Year})
		slot := int(admin.ClusterKeySlot(t.Context(), c.Key.String()).Val())
		if len(bySlot[slot]) < 2 {
			if bySlot[slot] = append(bySlot[slot], c); len(bySlot[slot]) == 2 {
				full++
			}
		}
	}
	var moving []int
	var all []store.Charge
	for slot, charges := range bySlot {
		if len(charges) == 2 {
			moving = append(moving, slot)
			all = append(all, charges...)
		}
	}

	paid := make([]atomic.Int64, len(all))
	stop := make(chan struct{})
	var calls atomic.Int64
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			out := make([]store.Decision, 2)
			for i := g; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				a := i % len(all)
				index := [][]int{{a}, {a, a ^ 1}, {a, (a + 2) % len(all)}}[i%3]
				request := make([]store.Charge, len(index))
				for k, at := range index {
					request[k] = all[at]
				}
				if err := s.Take(context.Background(), request, out[:len(index)]); err != nil {
					t.Errorf("take: %v", err)
				}
				for k, at := range index {
					paid[at].Add(out[k].Granted)
				}
				calls.Add(1)
			}
		})
	}
	between := func() {
		before := calls.Load()
		redistest.Await(t, patient, "calls that are answered", func() bool { return calls.Load() > before+20 })
	}
	owner := func(slot int) *redistest.Server {
		for i := range 3 {
			if slot >= i*16384/3 && slot < (i+1)*16384/3 {
				return cluster.Masters[i]
			}
		}
		t.Fatalf("slot %d has no owner", slot)
		return nil
	}
	for i, slot := range moving {
		from := owner(slot)
		to := cluster.Masters[3]
		if i%2 == 0 {
			to = cluster.Masters[0]
			if from == to {
				to = cluster.Masters[1]
			}
		}
		cluster.Move(slot, from, to, between)
	}
	between()
	close(stop)
	wg.Wait()
	for i := range all {
		c := all[i]
		c.Hits = 0
		if got, want := limit-take(t, s, c)[0].Remaining, paid[i].Load(); got != want {
			t.Errorf("key %d: got %d hits booked, want %d", i, got, want)
		}
	}
	t.Logf("%d calls", calls.Load())
}
