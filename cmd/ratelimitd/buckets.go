package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/override"
	"github.com/ratelimitd/ratelimitd/internal/redisconn"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/store"
	"github.com/ratelimitd/ratelimitd/internal/store/memstore"
	"github.com/ratelimitd/ratelimitd/internal/store/redisstore"
)

// lookTimeout is how long explain and key wait for Redis: a person's patience, not a decision's.
const lookTimeout = 2 * time.Second

// bucketsFlags say which buckets explain and key look at.
type bucketsFlags struct {
	redis         redisFlags
	keySecretFile string
	keySpace      string
}

func (f *bucketsFlags) addTo(cmd *cobra.Command) {
	f.redis.addTo(cmd, "look at the buckets in")
	cmd.Flags().StringVar(&f.keySpace, "key-space", "", "the `name` that serve keeps its buckets apart by")
	cmd.Flags().StringVar(&f.keySecretFile, "key-secret-file", "", "the `file` whose bytes serve derives bucket keys with; without it they are read from Redis")
}

// explainer is an engine that only explains.
type explainer struct {
	*engine.Engine
	keyed bool             // keys are those of a deployment; else of nobody
	live  *heard           // buckets are those of a deployment; nil: all are full
	conn  *redisconn.Redis // to it; nil with live
	close func() error
}

// explainer returns one over the buckets that the flags name.
func (f *bucketsFlags) explainer(cmd *cobra.Command, rules *rule.Snapshot) (*explainer, error) {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	url, err := f.redis.read(cmd, log)
	if err != nil {
		return nil, err
	}
	secret, err := keySecret(f.keySecretFile)
	if err != nil {
		return nil, err
	}
	x := &explainer{keyed: secret != "", close: func() error { return nil }}
	keyer := new(store.Keyer)
	if secret != "" {
		if err := keyer.Learn(store.Spaced([]byte(secret), f.keySpace)); err != nil {
			return nil, usagef("--key-secret-file: %w", err)
		}
	}
	buckets := store.Store(memstore.New(memstore.Options{}))
	if url != "" {
		f.redis.conn.URL = string(url)
		conn, err := redisconn.New(f.redis.conn)
		if err != nil {
			return nil, usagef("--redis-url: %w", err)
		}
		redis, err := redisstore.New(redisstore.Options{Redis: conn, Timeout: lookTimeout, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		x.close = func() error { return errors.Join(redis.Close(), conn.Close()) }
		x.live, x.conn = &heard{Store: redis}, conn
		buckets = x.live
		if err := locate(cmd.Context(), redis); err != nil {
			return nil, errors.Join(err, x.close())
		}
		if !x.keyed {
			if err := learn(cmd.Context(), redis, keyer, f.keySpace); err != nil {
				return nil, errors.Join(err, x.close())
			}
			x.keyed = true
		}
	}
	x.Engine, err = engine.New(engine.Options{Snapshots: fixed{rules}, Store: buckets, Keyer: keyer})
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// locate waits until it is known which servers hold the buckets.
func locate(ctx context.Context, redis *redisstore.Store) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := redis.Ready(ctx); err != nil {
		return unpaid(err)
	}
	return nil
}

// learn tells keyer the secret that is shared in Redis.
func learn(ctx context.Context, redis *redisstore.Store, keyer *store.Keyer, space string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	secret, err := redis.Secret(ctx)
	if err != nil {
		return unpaid(err)
	}
	return keyer.Learn(store.Spaced(secret, space))
}

// unpaid gives an error of Redis its words and its exit code: 4 unless it is a refusal.
func unpaid(err error) error {
	if refused := redisconn.Refusal(err); refused != nil {
		return fmt.Errorf("--redis-url: %w", refused)
	}
	return &exitError{exitUnreachable, fmt.Errorf("--redis-url: %w", err)}
}

// learnOverrides has x decide with the overrides that operators set, which are in the deployment's Redis. Where its user may
// not read them x goes without, and w is told.
func (f *bucketsFlags) learnOverrides(ctx context.Context, x *explainer, w io.Writer) error {
	if x.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	client := x.conn.Client()
	defer client.Close()
	l := ledger.NewRedis(client, ledger.Options{Space: f.keySpace})
	all, err := override.Read(ctx, l, time.Now(), slog.New(slog.NewTextHandler(w, nil)))
	if refused := redisconn.Refusal(err); refused != nil {
		writeLine(w, "without the overrides that operators set, which cannot be read: %v", refused)
		return nil
	}
	if err != nil {
		return unpaid(err)
	}
	x.SetOverrides(all)
	return nil
}

// heard is a store that remembers why it did not answer, the first time that it did not.
type heard struct {
	store.Store
	err error
}

// Take implements store.Store.
func (h *heard) Take(ctx context.Context, charges []store.Charge, out []store.Decision) error {
	err := h.Store.Take(ctx, charges, out)
	if h.err == nil {
		h.err = err
	}
	return err
}

// fixed are rules that never change.
type fixed struct{ rules *rule.Snapshot }

func (f fixed) Current() *rule.Snapshot { return f.rules }
