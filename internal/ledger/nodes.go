package ledger

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// ReportEvery is how often a node is to Report; one that has not for Lifetime is taken for dead.
const (
	ReportEvery = 10 * time.Second
	Lifetime    = 6 * ReportEvery
)

// Report is what a node says of itself.
type Report struct {
	Node          string    `json:"node"`
	Time          time.Time `json:"time"`
	Build         string    `json:"build"`
	Hash          string    `json:"rules_hash"`
	Origin        string    `json:"rules_origin"`
	OriginVersion string    `json:"rules_origin_version"`
	Error         string    `json:"rules_error,omitempty"`
	Seq           int64     `json:"seq"` // of the last entry that it has acted on
}

// reporter is a backend that other nodes share.
type reporter interface {
	report(ctx context.Context, node, text string) error
	reports(ctx context.Context) (map[string]string, error)
	bury(ctx context.Context, nodes []string) error
}

// Report tells the other nodes what this one says of itself.
func (l *Ledger) Report(ctx context.Context, r Report) error {
	r.Node, r.Time = l.o.Node, l.o.Now().UTC()
	err := l.tell(ctx, r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own, l.ownErr = r, err
	return err
}

// tell has the other nodes know what r says, if there can be any.
func (l *Ledger) tell(ctx context.Context, r Report) error {
	b, ok := l.backend.(reporter)
	if !ok {
		return nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return b.report(ctx, r.Node, string(text))
}

// Reports returns what the nodes that are alive say of themselves, in any order. It is an error if this one, which is, is
// not among them because it cannot report: then others may be missing too.
func (l *Ledger) Reports(ctx context.Context) ([]Report, error) {
	l.mu.Lock()
	own, ownErr := l.own, l.ownErr
	l.mu.Unlock()
	b, ok := l.backend.(reporter)
	if !ok {
		return []Report{own}, nil
	}
	texts, err := b.reports(ctx)
	if err != nil {
		return nil, err
	}
	var out []Report
	var dead []string
	for node, text := range texts {
		var r Report
		if json.Unmarshal([]byte(text), &r) != nil || l.o.Now().Sub(r.Time) > Lifetime {
			dead = append(dead, node)
			continue
		}
		out = append(out, r)
	}
	if len(dead) > 0 {
		_ = b.bury(ctx, dead) // the next who asks does it
	}
	if ownErr != nil && !slices.ContainsFunc(out, func(r Report) bool { return r.Node == l.o.Node }) {
		return nil, ownErr
	}
	return out, nil
}

func (b *redisBackend) report(ctx context.Context, node, text string) error {
	if err := b.c.HSet(ctx, b.keys.nodes, node, text).Err(); err != nil {
		return failed("report to Redis", err)
	}
	return nil
}

func (b *redisBackend) reports(ctx context.Context) (map[string]string, error) {
	texts, err := b.c.HGetAll(ctx, b.keys.nodes).Result()
	if err != nil {
		return nil, failed("read nodes in Redis", err)
	}
	return texts, nil
}

func (b *redisBackend) bury(ctx context.Context, nodes []string) error {
	return b.c.HDel(ctx, b.keys.nodes, nodes...).Err()
}
