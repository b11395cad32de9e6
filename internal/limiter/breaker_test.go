package limiter

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A patient is a breaker in a bubble, and a shard that it probes.
type patient struct {
	*breaker
	start  time.Time
	ill    atomic.Bool
	slow   atomic.Int64 // how long a probe takes
	mu     sync.Mutex
	probes []time.Duration // when each began
	moves  []move
}

type move struct {
	At   time.Duration
	Open bool
}

var errIll = errors.New("ill")

// admit returns a patient, to be used in a bubble.
func admit(t *testing.T) *patient {
	p := &patient{start: time.Now()}
	bg := newBackground()
	t.Cleanup(bg.close)
	p.breaker = newBreaker(bg, 5*time.Millisecond, p.now, p.probe, p.moved)
	return p
}

func (p *patient) now() time.Duration { return time.Since(p.start) }

func (p *patient) probe(ctx context.Context) error {
	p.mu.Lock()
	p.probes = append(p.probes, p.now())
	p.mu.Unlock()
	select {
	case <-time.After(time.Duration(p.slow.Load())):
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.ill.Load() {
		return errIll
	}
	return nil
}

func (p *patient) moved(open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moves = append(p.moves, move{p.now(), open})
}

// at waits until d after the start.
func (p *patient) at(d time.Duration) {
	time.Sleep(d - p.now())
	synctest.Wait()
}

func (p *patient) records(ok bool, n int) {
	for range n {
		p.record(p.now(), ok)
	}
}

func (p *patient) wantProbes(t *testing.T, want ...time.Duration) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if diff := cmp.Diff(want, p.probes); diff != "" {
		t.Errorf("probes: -want +got:\n%s", diff)
	}
}

func (p *patient) wantMoves(t *testing.T, want ...move) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if diff := cmp.Diff(want, p.moves); diff != "" {
		t.Errorf("transitions: -want +got:\n%s", diff)
	}
}

const ms = time.Millisecond

func TestBreakerTrips(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		calls func(*patient)
		open  bool
	}{
		"19 failures":                    {func(p *patient) { p.records(false, 19) }, false},
		"20 failures":                    {func(p *patient) { p.records(false, 20) }, true},
		"10 of 20":                       {func(p *patient) { p.records(true, 10); p.records(false, 10) }, true},
		"10 of 21":                       {func(p *patient) { p.records(true, 11); p.records(false, 10) }, false},
		"1 % of 10,000":                  {func(p *patient) { p.records(true, 9900); p.records(false, 100) }, false},
		"as many as a window ago":        {func(p *patient) { p.records(true, 100); p.at(190 * ms); p.records(false, 99) }, false},
		"successes left the window":      {func(p *patient) { p.records(true, 100); p.at(200 * ms); p.records(false, 20) }, true},
		"few calls: half of a second's":  {func(p *patient) { p.records(true, 10); p.at(500 * ms); p.records(false, 10) }, true},
		"few calls: less than half":      {func(p *patient) { p.records(true, 11); p.at(500 * ms); p.records(false, 10) }, false},
		"few calls: older than a second": {func(p *patient) { p.records(false, 10); p.at(1000 * ms); p.records(false, 10) }, false},
		"one failure every 50 ms": {func(p *patient) {
			for range 20 {
				p.records(false, 1)
				p.at(p.now() + 50*ms)
			}
		}, true},
		"one failure every 60 ms": {func(p *patient) {
			for range 100 {
				p.records(false, 1)
				p.at(p.now() + 60*ms)
			}
		}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := admit(t)
				p.ill.Store(true)
				tt.calls(p)
				if got := p.open.Load(); got != tt.open {
					t.Errorf("got open %v, want %v", got, tt.open)
				}
			})
		})
	}
}

// R5's figure without a network: 2,000 calls a second of which all fail from one instant on, 5 ms later each.
func TestBreakerOpensWithin200ms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admit(t)
		p.ill.Store(true)
		const hang = time.Second
		for !p.open.Load() {
			time.Sleep(500 * time.Microsecond)
			p.record(p.now(), p.now() < hang+5*ms)
			if p.now() > hang+200*ms {
				t.Fatal("not open 200 ms after the store hung")
			}
		}
		t.Logf("open %v after the store hung", p.now()-hang)
	})
}

func TestBreakerProbesBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admit(t)
		p.ill.Store(true)
		p.records(false, 20)
		p.at(25 * time.Second)
		p.wantProbes(t, 100*ms, 300*ms, 700*ms, 1500*ms, 3100*ms, 6300*ms, 11300*ms, 16300*ms, 21300*ms)
		p.ill.Store(false)
		p.at(30 * time.Second)
		p.wantMoves(t, move{0, true}, move{26300 * ms, false})
	})
}

func TestBreakerSlowIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admit(t)
		p.slow.Store(int64(6 * ms)) // a right answer, but over the budget of 5 ms, twice
		p.records(false, 20)
		p.at(250 * ms)
		p.wantProbes(t, 100*ms, 106*ms)
		if !p.open.Load() {
			t.Error("closed by an answer that came late")
		}
		p.slow.Store(int64(5 * ms))
		p.at(350 * ms)
		p.wantMoves(t, move{0, true}, move{305 * ms, false})
	})
}

func TestBreakerFirstProbeMayDial(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admit(t)
		p.slow.Store(int64(60 * ms))
		p.records(false, 20)
		p.at(130 * ms)
		p.slow.Store(0) // the first was slow for dialling
		p.at(200 * ms)
		p.wantProbes(t, 100*ms, 160*ms)
		p.wantMoves(t, move{0, true}, move{160 * ms, false})
	})
}

func TestBreakerNudge(t *testing.T) {
	t.Parallel()
	t.Run("probes at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := admit(t)
			p.ill.Store(true)
			p.records(false, 20)
			p.at(8 * time.Second) // the next probe would be at 11.3 s
			p.ill.Store(false)
			p.nudge()
			synctest.Wait()
			p.wantMoves(t, move{0, true}, move{8 * time.Second, false})
		})
	})
	t.Run("starts the pauses anew", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := admit(t)
			p.ill.Store(true)
			p.records(false, 20)
			p.at(8 * time.Second)
			p.nudge()
			p.at(9 * time.Second)
			p.wantProbes(t, 100*ms, 300*ms, 700*ms, 1500*ms, 3100*ms, 6300*ms, 8000*ms, 8100*ms, 8300*ms, 8700*ms)
		})
	})
	t.Run("a storm of events is no storm of probes", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := admit(t)
			p.ill.Store(true)
			p.records(false, 20)
			for p.now() < time.Second {
				p.nudge()
				time.Sleep(ms)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if got := len(p.probes); got < 9 || got > 11 {
				t.Errorf("got %d probes in a second of events every ms, want one every 100 ms", got)
			}
		})
	})
	t.Run("closed: nothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := admit(t)
			p.nudge()
			p.at(time.Second)
			p.wantProbes(t)
			p.ill.Store(true)
			p.records(false, 20)
			p.at(1050 * ms) // an event of before does not count
			p.wantProbes(t)
		})
	})
}

// A probe that fails after the shard seemed to come back keeps the breaker open, and so does a fourth recovery within
// 20 s: transitions are bounded (R11: a store that flaps 100 times a minute makes at most 12 of them).
func TestBreakerFlapping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admit(t)
		const half = 300 * ms // of 600 ms: 100 outages a minute
		for p.now() < 10*time.Minute {
			p.ill.Store(p.now()/half%2 == 1)
			if !p.open.Load() {
				p.records(!p.ill.Load(), 5)
			}
			time.Sleep(5 * ms)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		most := 0
		for i, first := range p.moves {
			n := 0
			for _, m := range p.moves[i:] {
				if m.At-first.At <= time.Minute {
					n++
				}
			}
			most = max(most, n)
		}
		if most > 12 {
			t.Errorf("got %d transitions within a minute, want at most 12", most)
		}
		if len(p.moves) < 20 {
			t.Errorf("got %d transitions in 10 minutes, want it to try again and again", len(p.moves))
		}
	})
}

func TestBreakerRelapse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := admit(t)
		for range 3 { // three recoveries are at once
			p.ill.Store(true)
			p.records(false, 20)
			p.at(p.now() + 50*ms)
			p.ill.Store(false)
			p.at(p.now() + 50*ms)
		}
		p.records(false, 20)
		p.at(20*time.Second - ms)
		if !p.open.Load() {
			t.Error("closed a fourth time within 20 s")
		}
		p.at(21 * time.Second)
		p.wantMoves(t,
			move{0, true}, move{100 * ms, false}, move{100 * ms, true}, move{200 * ms, false},
			move{200 * ms, true}, move{300 * ms, false}, move{300 * ms, true}, move{20*time.Second + 100*ms, false})
	})
}

// R10: while the breaker is open, or a probe is out, no caller reaches the store; and one probe at a time does.
func TestBreakerHalfOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPrimary()
		p.fault.Store(down)
		var out, most, probes atomic.Int64
		probe := func(ctx context.Context) error {
			most.Store(max(most.Load(), out.Add(1)))
			defer out.Add(-1)
			probes.Add(1)
			<-ctx.Done() // 100 ms
			return ctx.Err()
		}
		l := open(t, Options{Store: p, OwnTimer: true, Local: newPrimary(), Topology: OneShard("0", probe)})
		c := charge(t, perHour(500), fails)
		for range 20 {
			take(l, c)
		}
		time.Sleep(150 * ms)
		synctest.Wait()
		if out.Load() != 1 {
			t.Fatal("no probe is out")
		}
		before := p.calls.Load()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { take(l, c); l.Nudge() })
		}
		wg.Wait()
		time.Sleep(time.Minute)
		if got := p.calls.Load() - before; got != 0 {
			t.Errorf("got %d calls of the store by 1,000 callers while half-open, want 0", got)
		}
		if most.Load() != 1 {
			t.Errorf("got %d probes at one time, want 1", most.Load())
		}
		if probes.Load() < 10 {
			t.Errorf("got %d probes, want them to go on", probes.Load())
		}
	})
}
