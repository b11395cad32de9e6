package app

import (
	"context"
	"time"
)

// How often a process shows Redis that it lives.
const (
	pulseEvery = 3 * time.Second
	pulseRetry = 500 * time.Millisecond // while Redis does not answer
	pulseWait  = time.Second            // how long one may take
)

// pulse shows Redis again and again that this process lives, and learns from it how many do. A pulse that succeeds after
// one that did not tells that Redis is back, long before a breaker that has backed off would ask.
type pulse struct {
	beat  func(context.Context) (nodes int, err error)
	learn func(nodes int)
	back  func()
}

// run goes on until ctx ends.
func (p *pulse) run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		waiting, cancel := context.WithTimeout(ctx, pulseWait)
		nodes, err := p.beat(waiting)
		cancel()
		if err != nil {
			failing = true
			t.Reset(pulseRetry)
			continue
		}
		p.learn(nodes)
		if failing {
			failing = false
			p.back()
		}
		t.Reset(pulseEvery)
	}
}
