package engine

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// startSpan starts a span for a decision if the caller's is recorded; without one a decision pays one look at ctx.
func (e *Engine) startSpan(ctx context.Context) (context.Context, trace.Span) {
	if e.tracer == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	return e.tracer.Start(ctx, "ratelimitd.decide")
}

// endSpan writes what was decided, and by which rule.
func (p *plan) endSpan(v *Verdict) {
	if p.span == nil {
		return
	}
	domain := p.metrics.name
	attrs := []attribute.KeyValue{
		attribute.String("ratelimitd.domain", domain),
		attribute.String("ratelimitd.verdict", verdictNames[outcome(v)]),
		attribute.String("ratelimitd.origin", originNames[p.origin(v)]),
		attribute.Int("ratelimitd.descriptors", len(p.matches)),
		attribute.Int("ratelimitd.charges", len(p.owners)),
	}
	if v.Nearest >= 0 {
		s := &v.Statuses[v.Nearest]
		attrs = append(attrs,
			attribute.String("ratelimitd.rule", p.counts(p.matches[v.Nearest].first).of.rule),
			attribute.String("ratelimitd.limit", s.Name),
			attribute.Int64("ratelimitd.remaining", int64(s.Remaining)),
		)
	}
	if p.blocked != nil {
		attrs = append(attrs, attribute.String("ratelimitd.blocked", p.blocked.Reason))
	}
	p.span.SetAttributes(attrs...)
	p.span.End()
}

// done counts, traces and logs what was decided, and lets go of the scratch.
func (e *Engine) done(ctx context.Context, p *plan, req *Request, v *Verdict) {
	e.metrics.observe(p, v)
	p.endSpan(v)
	e.log.refused(ctx, req, v)
	e.log.unmatched(ctx, req, p)
	p.release(e)
}
