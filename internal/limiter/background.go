package limiter

import (
	"context"
	"sync"
)

// background runs what outlives a request and ends with the limiter. Safe for concurrent use.
type background struct {
	ctx  context.Context // cancelled by close
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// start runs f on a goroutine of its own, and reports false if the limiter is closed.
func (b *background) start(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

// close cancels ctx and waits for everything that was started.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop()
	b.wg.Wait()
}
