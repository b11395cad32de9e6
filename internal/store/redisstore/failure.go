package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

var (
	errClosed  = errors.New("store is closed")
	errNoKey   = errors.New("key secret is not known yet")
	errFull    = errors.New("too many requests wait for the shard")
	errNowhere = errors.New("no master is known")
	errTimeout = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
)

// unavailable says that a request was not paid, as far as is known.
func unavailable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnavailable, err) }

// unsent says that nothing of a request was applied.
func unsent(err error) error { return fmt.Errorf("%w: %w", store.ErrUnsent, err) }

// refusals are the codes with which Redis refuses a script, or its first write: it fails none after that.
var refusals = []string{
	"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOAUTH", "NOPERM", "NOREPLICAS", "OOM", "READONLY",
	"TRYAGAIN", "WRONGPASS",
}

// translate makes an error of the store of what a call of Redis returned.
func translate(err error) error {
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, errNowhere):
		return unsent(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return unavailable(fmt.Errorf("%w: %w", errTimeout, err))
	// A permission may also be missing for a command in the middle of the script.
	case redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "script"):
		return unavailable(err)
	// In a Cluster, a slot that has moved on and on.
	case redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"), redis.HasErrorPrefix(err, "CROSSSLOT"):
		return unsent(fmt.Errorf("%w (nodes of a Redis Cluster want a URL of redis-cluster://)", err))
	case slices.ContainsFunc(refusals, func(code string) bool { return redis.HasErrorPrefix(err, code) }):
		return unsent(err)
	default:
		return unavailable(err)
	}
}

// outageEvery is how often an outage is worth a line in the log.
const outageEvery = 10 * time.Second

// outage logs calls that Redis did not answer: the first, then one line every ten seconds with how many there were.
type outage struct {
	logger *slog.Logger

	mu     sync.Mutex
	failed int       // calls since the last line
	last   time.Time // of the last line
}

// report tells of one failed call.
func (o *outage) report(shard string, err error) {
	o.mu.Lock()
	o.failed++
	now := time.Now()
	if now.Sub(o.last) < outageEvery {
		o.mu.Unlock()
		return
	}
	failed := o.failed
	o.failed, o.last = 0, now
	o.mu.Unlock()
	o.logger.Warn("redis does not take charges", "shard", shard, "error", err, "calls", failed)
}
