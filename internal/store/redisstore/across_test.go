package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

func TestAcrossSlots(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Setup{}, 3, 0, false)
	for name, loser := range map[string]int{"the first loses": 0, "the second loses": 1} {
		t.Run(name, func(t *testing.T) { testLostRace(t, c, name, loser) })
	}
	t.Run("a shard is dead", func(t *testing.T) { testDeadShare(t, c) })
}

// testLostRace empties one of two buckets between the two steps of a request: it is refused, and the other one gets back
// what was booked, but for a report.
func testLostRace(t *testing.T, c *redistest.Cluster, name string, loser int) {
	at := time.Unix(1_835_395_200, 0)
	other := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient, Now: func() time.Time { return at }})
	config := bucket.Config{Hits: 10, Unit: bucket.Year}
	request := apart(t, other, 3, "lost race: "+name, config)
	request[2].Limit = charge(t, "", bucket.Config{Hits: 10, Unit: bucket.Year, Debt: 5}).Limit
	request[2].Book = store.BookAlways
	drain := request[loser]
	drain.Hits = 10
	encoded := -1 // calls of Now: three shares are asked, and the fourth call is of the first share that is charged
	r := prometheus.NewRegistry()
	s := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient, Registerer: r, Now: func() time.Time {
		if encoded >= 0 {
			if encoded++; encoded == 4 {
				take(t, other, drain)
			}
		}
		return at
	}})
	encoded = 0
	got := take(t, s, request...)
	winner := 1 - loser
	if store.Admitted(request, got) || got[loser].Allowed || got[loser].Granted != 0 || got[loser].RetryAfter <= 0 {
		t.Errorf("got %+v, want the emptied bucket to refuse", got)
	}
	if d := got[winner]; !d.Allowed || d.Granted != 0 || d.Remaining != 10 || d.Tick != 0 {
		t.Errorf("the other: got %+v, want it allowed, not booked, and 10 left", d)
	}
	if d := got[2]; d.Granted != 1 || d.Remaining != 9 {
		t.Errorf("the report: got %+v, want it booked", d)
	}
	peek := request[winner]
	peek.Hits = 0
	redistest.Await(t, 10*time.Second, "hits that are back", func() bool { return take(t, other, peek)[0].Remaining == 10 })
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]float64)
	for _, f := range families {
		counts[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if counts["ratelimitd_redisstore_lost_races_total"] != 1 || counts["ratelimitd_redisstore_lost_hits_total"] != 0 {
		t.Errorf("metrics: got %v, want one race and no hits lost", counts)
	}
}

// testDeadShare asks for two buckets of which one has died: the other is charged, and the request's error does not say that
// nothing was.
func testDeadShare(t *testing.T, c *redistest.Cluster) {
	s := openCluster(t, redisstore.Options{URL: c.URL(), Timeout: patient})
	pair := apart(t, s, 2, "a dead share", bucket.Config{Hits: 10, Unit: bucket.Year})
	take(t, s, pair...)
	for _, m := range c.Masters {
		if m.Client().Exists(t.Context(), pair[0].Key.String()).Val() == 1 {
			m.Stop()
			break
		}
	}
	got := make([]store.Decision, 2)
	err := s.Take(t.Context(), pair, got)
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnsent) {
		t.Errorf("got error %v, want ErrUnavailable and not ErrUnsent", err)
	}
	if diff := cmp.Diff(store.Unpaid(&pair[0]), got[0]); diff != "" {
		t.Errorf("the dead one: -want +got:\n%s", diff)
	}
	if d := got[1]; !d.Allowed || d.Granted != 1 || d.Remaining != 8 || d.Origin != store.FromStore {
		t.Errorf("the other: got %+v, want it charged and 8 left", d)
	}
	if err := s.Take(t.Context(), pair[:1], got[:1]); !errors.Is(err, store.ErrUnsent) {
		t.Errorf("the dead one alone: got error %v, want ErrUnsent", err)
	}
	shard := s.Shard(&pair[0])
	if err := s.Probe(t.Context(), shard); err == nil {
		t.Error("probe of the dead shard: got no error, want one")
	}
	if err := s.Probe(t.Context(), s.Shard(&pair[1])); err != nil {
		t.Errorf("probe of the other: %v", err)
	}
}

// TestRecoveryIsNoticed ends a server and starts it again: whoever wants to know is told, while nobody asks for anything.
func TestRecoveryIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	changed := make(chan struct{}, 100)
	s := open(t, redisstore.Options{URL: server.URL(), Timeout: 200 * time.Millisecond, OnChange: func() { changed <- struct{}{} }})
	wantPaid(t, "before", s)
	server.Stop()
	if err := s.Take(t.Context(), []store.Charge{charge(t, "a", bucket.Config{Hits: 1, Unit: bucket.Hour})}, make([]store.Decision, 1)); err == nil {
		t.Error("a server that has stopped: got no error, want one")
	}
	for len(changed) > 0 {
		<-changed
	}
	server.Restart()
	select {
	case <-changed:
	case <-time.After(10 * time.Second): // the promise is two seconds
		t.Fatal("nobody was told")
	}
	wantPaid(t, "after", s)
}
