package app

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

const (
	pulseRetry = 500 * time.Millisecond // after a pulse that Redis did not answer
	pulseWait  = time.Second            // how long one may take
)

// pulse shows Redis again and again that this process lives, and learns from it how many do.
type pulse struct {
	beat  func(context.Context) (nodes int, err error)
	learn func(nodes int)
	leave func(context.Context) error
}

// run goes on until ctx ends, and then has the other processes know at once.
func (p *pulse) run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), pulseWait)
			defer cancel()
			_ = p.leave(leaving) // Redis forgets this process by itself
			return
		case <-t.C:
		}
		waiting, cancel := context.WithTimeout(ctx, pulseWait)
		nodes, err := p.beat(waiting)
		cancel()
		if err != nil {
			t.Reset(pulseRetry)
			continue
		}
		p.learn(nodes)
		t.Reset(redisstore.NodesEvery)
	}
}
