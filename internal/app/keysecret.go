package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// How often the shared key secret is asked for.
const (
	learnRetry   = 250 * time.Millisecond // until it is known
	learnRefresh = 10 * time.Second       // afterwards: Redis may have been flushed, and another process made a new one
)

// registerKnown registers a gauge that says whether keyer has its secret.
func registerKnown(reg prometheus.Registerer, keyer *store.Keyer) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_app_key_secret_known",
		Help: "Whether the secret of bucket keys is known (1), or limits answer by their failure mode until it is (0).",
	}, func() float64 {
		if known(keyer) {
			return 1
		}
		return 0
	}))
}

// known reports whether keyer has its secret.
func known(keyer *store.Keyer) bool { return !keyer.Key("", nil).Provisional() }

// pupil learns the key secret that is shared in Redis, or creates it there. Until it is known Redis is not
// asked, and every limit answers by its failure mode.
type pupil struct {
	redis   *redisstore.Store
	keyer   *store.Keyer
	space   string // whose keys are wanted
	log     *slog.Logger
	known   string // the secret; "" until it is known
	failing bool   // the last attempt failed, and was logged
}

// run asks again and again until ctx ends.
func (p *pupil) run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.ask(ctx)
		wait := learnRetry
		if p.known != "" {
			wait = learnRefresh
		}
		t.Reset(wait)
	}
}

// ask asks once.
func (p *pupil) ask(ctx context.Context) {
	answer, err := p.redis.Secret(ctx)
	secret := string(answer)
	if err == nil && secret != p.known {
		err = p.keyer.Learn(store.Spaced(answer, p.space))
	}
	if err != nil {
		if !p.failing && ctx.Err() == nil {
			p.log.Warn("key secret cannot be read from Redis, trying on", "known", p.known != "", "error", err)
		}
		p.failing = true
		return
	}
	switch {
	case p.known == "":
		p.log.Info("key secret read from Redis, buckets are shared")
	case p.known != secret:
		p.log.Warn("key secret in Redis has changed, every bucket starts afresh")
	}
	p.known, p.failing = secret, false
}
