package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// sentinelTimeout bounds a question to one Sentinel. It is not the deadline of decisions: nobody's request waits for it.
	sentinelTimeout = time.Second
	// othersTimeout is how long the others are waited for once one has answered: a Sentinel that hangs delays nothing for
	// long, one that is late is heard.
	othersTimeout = 100 * time.Millisecond
)

func (r *Redis) openSentinels() {
	for _, addr := range r.addrs {
		o := r.node(addr)
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			l, err := r.sentinelLogin()
			return l.username, l.password, err
		}
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = sentinelTimeout, sentinelTimeout, sentinelTimeout, sentinelTimeout
		o.PoolSize = 2
		r.sentinels = append(r.sentinels, redis.NewClient(o))
	}
}

// Master returns the address of the master that the Sentinels have agreed on last: all are asked at once, and of those
// that answer the one with the latest configuration is believed. It waits a second at most.
func (r *Redis) Master(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	type answer struct {
		addr  string
		epoch int64
		err   error
	}
	answers := make(chan answer, len(r.sentinels))
	for i, c := range r.sentinels {
		go func() {
			addr, epoch, err := ask(ctx, c, r.master)
			if err != nil {
				err = fmt.Errorf("sentinel %s: %w", r.addrs[i], err)
			}
			answers <- answer{addr, epoch, err}
		}()
	}
	var best answer
	var errs []error
	for range r.sentinels {
		switch a := <-answers; {
		case a.err != nil:
			errs = append(errs, a.err)
		case best.addr == "":
			best = a
			time.AfterFunc(othersTimeout, cancel)
		case a.epoch > best.epoch:
			best = a
		}
	}
	if best.addr == "" {
		return "", fmt.Errorf("ask %d sentinels for the master, all in vain: %w", len(errs), errs[0])
	}
	return best.addr, nil
}

// ask asks one Sentinel where the master is, and how recent its knowledge is. While it moves a master it tells the new
// address at once, by the first question only.
func ask(ctx context.Context, c *redis.Client, master string) (addr string, epoch int64, err error) {
	pipe := c.Pipeline()
	where := redis.NewStringSliceCmd(ctx, "sentinel", "get-master-addr-by-name", master)
	state := redis.NewMapStringStringCmd(ctx, "sentinel", "master", master)
	_ = pipe.Process(ctx, where)
	_ = pipe.Process(ctx, state)
	_, _ = pipe.Exec(ctx) // each command has its own error
	at, err := where.Result()
	if errors.Is(err, redis.Nil) || err == nil && len(at) != 2 {
		return "", 0, errors.New("knows no master of the URL's name")
	}
	if err != nil {
		return "", 0, err
	}
	// Without the right to ask for it all are equally recent.
	epoch, _ = strconv.ParseInt(state.Val()["config-epoch"], 10, 64)
	return net.JoinHostPort(at[0], at[1]), epoch, nil
}
