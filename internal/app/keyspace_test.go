package app_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Two deployments on one Redis, each with a key space of its own, share no bucket; two processes of one share them.
func TestKeySpacesStayApart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	conns := map[string]*grpc.ClientConn{}
	for _, name := range []string{"a", "a again", "b", ""} {
		o, log := options(t, rules)
		o.RedisURL, o.RedisTimeout = app.Secret(redis.URL()), patience
		o.KeySpace, _, _ = strings.Cut(name, " ")
		a := start(t, o)
		eventually(t, "the key secret is known", func() bool { return strings.Contains(log.String(), "key secret read from Redis") })
		conns[name] = dial(t, a)
	}
	wantCodes(t, conns["a"], "api", "x", ok)
	wantCodes(t, conns["b"], "api", "x", ok, ok, over)
	wantCodes(t, conns["a again"], "api", "x", ok, over)
	wantCodes(t, conns[""], "api", "x", ok, ok, over)
	wantCodes(t, conns["a"], "api", "x", over)
}
