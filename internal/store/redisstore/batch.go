package redisstore

import (
	"context"
	"fmt"
	"runtime"

	"github.com/redis/go-redis/v9"
)

// tuning are the numbers of group commit. docs/redis.md has the measurements they come from.
type tuning struct {
	senders int // calls of Redis in flight at once
	charges int // a batch takes no further request once it has this many charges: it bounds how long Redis is busy
	queue   int // requests that wait for a sender
}

var tuned = tuning{senders: 2, charges: 128, queue: 1024}

// send carries batches to Redis until the store closes. It waits for a first request and takes along all that have
// gathered behind it, without waiting for more: an idle store sends at once, a busy one sends what came while all its
// senders were in flight.
func (s *Store) send() {
	defer s.senders.Done()
	var b batch
	for {
		select {
		case <-s.closing:
			return
		case c := <-s.calls:
			b.add(c)
		}
		// Let those that are about to ask be heard: a burst of requests wakes as many goroutines.
		runtime.Gosched()
		for gathering := true; gathering && b.charges < s.tuning.charges; {
			select {
			case c := <-s.calls:
				b.add(c)
			default:
				gathering = false
			}
		}
		s.exec(&b)
	}
}

// batch is the requests of one call of Redis. The zero value is empty.
type batch struct {
	calls   []*call
	charges int
	args    []any // the command's arguments, reused
}

// add takes c along, unless its caller has left already.
func (b *batch) add(c *call) {
	if c.depart() {
		b.calls = append(b.calls, c)
		b.charges += c.charges
	}
}

// exec sends the batch, answers its callers, and empties it.
func (s *Store) exec(b *batch) {
	if len(b.calls) == 0 {
		return
	}
	args := b.args[:0]
	for _, c := range b.calls {
		for i := range c.keys {
			args = append(args, &c.keys[i])
		}
	}
	for _, c := range b.calls {
		args = append(args, &c.request)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.ioTimeout())
	reply, err := s.eval(ctx, b.charges, args)
	cancel()
	if err == nil && len(reply) != b.charges*replyLen {
		err = fmt.Errorf("reply of the script: got %d numbers, want %d", len(reply), b.charges*replyLen)
	}
	if err != nil {
		s.outage.report(err)
		err = translate(err)
	}
	for _, c := range b.calls {
		if err == nil {
			c.reply = append(c.reply[:0], reply[:c.charges*replyLen]...)
			reply = reply[c.charges*replyLen:]
		}
		c.finish(err)
	}
	clear(b.calls)
	clear(args)
	b.calls, b.args, b.charges = b.calls[:0], args, 0
}

// eval runs the script by its hash, with its body only if the server does not know it: the one case in which a call is
// sent twice, since the first ran nothing.
func (s *Store) eval(ctx context.Context, keys int, keysAndArgs []any) ([]int64, error) {
	args := append(make([]any, 0, 3+len(keysAndArgs)), "evalsha", scriptHash, keys)
	args = append(args, keysAndArgs...)
	cmd := redis.NewIntSliceCmd(ctx, args...)
	err := s.client.Process(ctx, cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", script
		cmd = redis.NewIntSliceCmd(ctx, args...)
		err = s.client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}
