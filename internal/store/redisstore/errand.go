package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// hops is how often a call of the script may be sent once more after it was refused. Each time the server has said that
// it ran nothing; of a Cluster whose slots move, one such answer may follow another.
const hops = 5

// An errand is one call of the script with all requests of a batch whose keys share a slot. take.lua says what it sends.
type errand struct {
	calls  []*call
	args   []any // of the command, reused
	cmd    *redis.StringCmd
	at     *node
	asking bool // the node takes the slot over, and is asked ahead of that

	// What is alike is sent once: which of the arguments it is, counted from one.
	places, texts   map[string]byte
	order, repeated []byte // of each request its text; of each charge its key
}

// pack makes the errand of calls, which it keeps.
func (e *errand) pack(calls []*call) {
	if e.places == nil {
		e.places, e.texts = make(map[string]byte), make(map[string]byte)
	}
	e.calls, e.at, e.asking = calls, nil, false
	e.order, e.repeated = e.order[:0], e.repeated[:0]
	args := append(e.args[:0], "evalsha", scriptHash, 0)
	for _, c := range calls {
		for i := range c.keys {
			place, known := numberOf(e.places, c.keys[i])
			if !known {
				args = append(args, &c.keys[i])
			}
			e.repeated = append(e.repeated, place)
		}
	}
	args[2] = len(e.places)
	if len(e.places) == len(e.repeated) {
		e.repeated = e.repeated[:0] // each charge has the key of its number
	}
	order := len(args)
	args = append(args, nil, e.repeated)
	for _, c := range calls {
		number, known := numberOf(e.texts, c.request)
		if !known {
			args = append(args, &c.request)
		}
		e.order = append(e.order, number)
	}
	args[order] = e.order
	e.args = args
}

// numberOf returns the number of text in numbers, and whether it was known: it is given the next one if not. An errand has
// at most 255 charges: see mostBatched.
func numberOf(numbers map[string]byte, text string) (n byte, known bool) {
	n, known = numbers[text]
	if !known {
		n = byte(len(numbers) + 1)
		numbers[text] = n
	}
	return n, known
}

func (e *errand) clear() {
	clear(e.args)
	clear(e.places)
	clear(e.texts)
	e.calls, e.args, e.cmd, e.at = nil, e.args[:0], nil, nil
}

// split returns an errand for each of e's calls.
func (e *errand) split() []*errand {
	parts := make([]*errand, len(e.calls))
	for i := range e.calls {
		parts[i] = &errand{}
		parts[i].pack(e.calls[i : i+1])
		parts[i].at, parts[i].asking = e.at, e.asking
	}
	return parts
}

// deliver carries a batch to Redis, answers its callers, and empties it.
func (s *Store) deliver(l *lane, b *batch) {
	if len(b.calls) == 0 {
		return
	}
	began := time.Now()
	errands := b.group()
	at := l.node.Load()
	for _, e := range errands {
		e.at = at
	}
	var failed error
	for hop := 0; len(errands) > 0; hop++ {
		s.carry(errands)
		var again []*errand
		for _, e := range errands {
			err := e.cmd.Err()
			if err != nil && hop < hops {
				if next := s.reroute(e, err); next != nil {
					again = append(again, next...)
					continue
				}
			}
			l.calls.answered(e.calls)
			err = e.answer(err) // callers first
			failed = cmp.Or(failed, err)
		}
		errands = again
	}
	b.clear()
	s.report(l, failed, time.Since(began))
}

// carry sends errands and waits for their replies, those of one node in one pipeline.
func (s *Store) carry(errands []*errand) {
	ctx, cancel := context.WithTimeout(context.Background(), s.ioTimeout())
	defer cancel()
	for _, e := range errands {
		e.cmd = redis.NewStringCmd(ctx, e.args...)
	}
	if len(errands) == 1 && errands[0].at != nil && !errands[0].asking {
		_ = errands[0].at.client.Process(ctx, errands[0].cmd) // the command has its own error
		return
	}
	for _, first := range errands {
		if first.at == nil {
			first.cmd.SetErr(s.nowhere())
			continue
		}
		if first.carried(errands) {
			continue
		}
		pipe := first.at.client.Pipeline()
		for _, e := range errands {
			if e.at != first.at {
				continue
			}
			if e.asking {
				_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
			}
			_ = pipe.Process(ctx, e.cmd)
		}
		_, _ = pipe.Exec(ctx)
	}
}

// carried reports whether an errand before e goes to the same node.
func (e *errand) carried(errands []*errand) bool {
	for _, other := range errands {
		if other == e {
			return false
		}
		if other.at == e.at {
			return true
		}
	}
	return false
}

// reroute returns what is to be sent instead of e, which a node has refused with err and not run, or nil.
func (s *Store) reroute(e *errand, err error) []*errand {
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		e.args[0], e.args[1] = "eval", script
		return []*errand{e}
	}
	if addr, ok := redis.IsMovedError(err); ok && s.cluster != nil {
		s.stir()
		e.at, e.asking = s.nodes.get(beside(addr, e.at.addr)), false
		return []*errand{e}
	}
	if addr, ok := redis.IsAskError(err); ok && s.cluster != nil {
		e.at, e.asking = s.nodes.get(beside(addr, e.at.addr)), true
		return []*errand{e}
	}
	// While a slot moves, its nodes take scripts on one key each.
	if redis.IsTryAgainError(err) && len(e.calls) > 1 {
		return e.split()
	}
	return nil
}

// read gives each call its part of the reply.
func (e *errand) read() error {
	want := 0
	for _, c := range e.calls {
		want += c.charges * answerLen
	}
	reply := e.cmd.Val()
	if len(reply) != want {
		return fmt.Errorf("reply of the script: got %d bytes, want %d", len(reply), want)
	}
	for _, c := range e.calls {
		part := c.charges * answerLen
		c.reply, reply = append(c.reply[:0], reply[:part]...), reply[part:]
	}
	return nil
}

// answer tells e's callers what came of it, and returns what went wrong with the shard.
func (e *errand) answer(err error) error {
	if err == nil {
		err = e.read()
	}
	told := translate(err)
	for _, c := range e.calls {
		c.finish(told)
	}
	if redis.IsTryAgainError(err) {
		return nil // its caller asks key by key
	}
	return err
}

// report notes how a lane's delivery went. What is down is looked at again soon.
func (s *Store) report(l *lane, err error, took time.Duration) {
	if err != nil && !errors.Is(err, errNowhere) { // why nobody is known there is reported by who asked
		s.outage.report(l.name, err)
	}
	down := err != nil || took > s.timeout
	if l.down.Swap(down) != down && down {
		s.stir()
	}
}
