package engine

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

const (
	logsPerSecond = 10 // of each kind
	loggedBytes   = 64 // of one text that a stranger chose
	loggedEntries = 8  // of one descriptor
)

// sampledLog tells of refusals and unmatched descriptors, a few a second. It logs below info, which the request path
// stays silent at; counters tell how many there were.
type sampledLog struct {
	logger    *slog.Logger
	refusals  sampler
	strangers sampler
}

// sampler lets logsPerSecond pass a second. The zero value is ready.
type sampler struct {
	second atomic.Int64
	passed atomic.Int64
}

func (s *sampler) allow(now time.Time) bool {
	second := now.Unix()
	if last := s.second.Load(); last != second && s.second.CompareAndSwap(last, second) {
		s.passed.Store(0)
	}
	return s.passed.Add(1) <= logsPerSecond
}

// refused tells of a request that was denied, or would have been but for --shadow.
func (l *sampledLog) refused(ctx context.Context, req *Request, v *Verdict) {
	if !v.Over && !v.WouldDeny || !l.logger.Enabled(ctx, slog.LevelDebug) || !l.refusals.allow(time.Now()) {
		return
	}
	attrs := []slog.Attr{slog.String("domain", cut(req.Domain)), slog.Bool("shadow", v.WouldDeny)}
	if v.Blocked != nil {
		attrs = append(attrs, slog.String("blocked", v.Blocked.Key+" "+v.Blocked.Match), slog.String("reason", v.Blocked.Reason))
	}
	if v.Nearest >= 0 {
		s := &v.Statuses[v.Nearest]
		attrs = append(attrs,
			slog.String("rule", cut(s.MetricPath())),
			slog.String("limit", s.Name),
			slog.Duration("retry_after", s.RetryAfter),
			slog.String("descriptor", describe(req.Descriptors[v.Nearest].Entries, true)),
		)
	}
	l.logger.LogAttrs(ctx, slog.LevelDebug, "request refused", attrs...)
}

// unmatched tells of the first descriptor of a request that no rule matched: by its keys, since values may be anything
// and anyone's.
func (l *sampledLog) unmatched(ctx context.Context, req *Request, p *plan) {
	if p.blocked != nil || !l.logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	for i := range p.matches {
		if !p.matches[i].unmatched() {
			continue
		}
		if l.strangers.allow(time.Now()) {
			l.logger.LogAttrs(ctx, slog.LevelDebug, "descriptor unmatched", slog.String("domain", cut(req.Domain)),
				slog.Bool("domain_known", p.domain != nil), slog.String("keys", describe(req.Descriptors[i].Entries, false)))
		}
		return
	}
}

// describe writes entries for people.
func describe(entries []rule.Entry, values bool) string {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteString(", ")
		}
		if i == loggedEntries {
			b.WriteString("…")
			break
		}
		b.WriteString(cut(e.Key))
		if values {
			b.WriteByte('=')
			b.WriteString(cut(e.Value))
		}
	}
	return b.String()
}

// cut returns text in a form that no terminal or log reader can mistake for something else, and not much of it.
func cut(s string) string {
	more := ""
	if len(s) > loggedBytes {
		s, more = s[:loggedBytes], "…"
	}
	return strconv.QuoteToASCII(s) + more
}
