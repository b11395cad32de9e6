package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/redistest"
)

// Rights of the user svc.
const (
	everything   = "~* &* +@all"
	forDecisions = "resetchannels ~rl1:* -@all +evalsha +eval +mget +set +del +time +get +setnx" // as docs/redis.md has them
)

// grants gives the user svc other rights.
func grants(t *testing.T, redis *redistest.Server, rights string) {
	t.Helper()
	args := []any{"acl", "setuser", "svc"}
	for word := range strings.FieldsSeq(rights) {
		args = append(args, word)
	}
	if err := redis.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

// matches reports whether text matches the pattern.
func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// What people ask of a deployment whose Redis refuses, or is gone, is answered by why, with an exit code that tells the
// two apart, and never as if there were nothing.
func TestRedisRefusesPeople(t *testing.T) {
	t.Parallel()
	why := []string{"--author", "ann", "--reason", "ticket 7"}
	reads := [][]string{
		{"override", "list"}, {"audit", "list"}, {"audit", "verify"}, {"nodes"},
		{"rules", "history"}, {"rules", "get"}, {"rules", "diff", "../../examples/rules"},
	}
	writes := [][]string{
		append([]string{"override", "set", "--entry", "user=u1", "--block", "--for", "1h"}, why...),
		append([]string{"override", "rm", "o-1"}, why...),
		append([]string{"grant", "shop | [path=/login]"}, why...),
		append([]string{"rules", "apply", "../../examples/rules"}, why...),
		append([]string{"rules", "rollback", "1"}, why...),
	}
	all := append(append([][]string{}, reads...), writes...)
	tests := map[string]struct {
		spoil    func(t *testing.T, redis *redistest.Server)
		commands [][]string
		code     int
		says     string
	}{
		"rights that were never granted": {
			func(t *testing.T, redis *redistest.Server) { grants(t, redis, "reset on >word "+forDecisions) },
			all, exitFailure, "NOPERM.*docs/redis.md#permissions",
		},
		"a password that was changed": {
			func(t *testing.T, redis *redistest.Server) {
				grants(t, redis, "reset on >other "+everything)
				redis.Client().Do(t.Context(), "client", "kill", "user", "svc")
			},
			all, exitFailure, "WRONGPASS.*docs/redis.md#connecting",
		},
		"keys of another type": {
			func(t *testing.T, redis *redistest.Server) {
				for _, key := range []string{"state", "nodes"} {
					redis.Client().Set(t.Context(), "rl1:{audit}:"+key, "text", 0)
				}
			},
			all, exitFailure, "WRONGTYPE.*docs/redis.md#keys",
		},
		"a replica": {
			func(t *testing.T, redis *redistest.Server) {
				redis.Client().Do(t.Context(), "replicaof", "127.0.0.1", "1")
			},
			[][]string{writes[0], writes[2], writes[3], writes[4]}, exitFailure, "READONLY.*want the master",
		},
		"nobody there": {
			func(_ *testing.T, redis *redistest.Server) { redis.Stop() },
			all, exitUnreachable, "not available: dial.*refused",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			grants(t, redis, "reset on >word "+everything)
			s := startProcess(t, nil, append([]string{
				"ratelimitd", "serve", "--rules-from-redis", "--redis-url", "redis://svc:word@" + redis.Addr,
			}, freePorts()...)...)
			ask := func(args []string) (code int, out, said string) {
				var stdout, stderr strings.Builder
				code = run(append(args, "--admin-url", "http://"+s.Admin), &stdout, &stderr)
				return code, stdout.String(), stderr.String()
			}
			if code, _, said := ask(writes[3]); code != exitOK {
				t.Fatalf("publish rules: exit code %d, %s", code, said)
			}
			redistest.Await(t, patience, "the node reports", func() bool {
				_, out, _ := ask([]string{"nodes"})
				return strings.Contains(out, "redis 1")
			})
			tt.spoil(t, redis)
			for _, args := range tt.commands {
				code, out, said := ask(args)
				if code != tt.code || !matches(tt.says, said) || out != "" {
					t.Errorf("%v: got exit code %d, %q and %q, want %d, nothing and %q", args, code, out, said, tt.code, tt.says)
				}
			}
		})
	}
}

// Overrides that are in force are listed though Redis is gone, and it is said that there may be others.
func TestOverridesListedWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, oneRule, "--redis-url", redis.URL())
	var id, listed, said strings.Builder
	if code := run([]string{
		"override", "set", "--admin-url", "http://" + s.Admin, "--entry", "user=u1", "--block", "--for", "1h",
		"--author", "ann", "--reason", "ticket 7",
	}, &id, &said); code != exitOK {
		t.Fatalf("set: exit code %d, %s", code, said.String())
	}
	redis.Stop()
	code := run([]string{"override", "list", "--admin-url", "http://" + s.Admin}, &listed, &said)
	if code != exitOK || !strings.Contains(listed.String(), strings.TrimSpace(id.String())) {
		t.Errorf("list: got exit code %d and %q, want %s in it", code, listed.String(), id.String())
	}
	if want := "there may be others, .*not available: dial"; !matches(want, said.String()) {
		t.Errorf("list: said %q, want %q", said.String(), want)
	}
}

// explain and key look at Redis themselves.
func TestRedisRefusesExplain(t *testing.T) {
	t.Parallel()
	rules := fileWith(t, oneRule)
	secret := fileWith(t, "sixteen bytes or more")
	tests := map[string]struct {
		rights string // of svc, whose password is word
		url    string // with %s for the address
		flags  []string
		code   int
		says   string
	}{
		"nothing granted":      {"on >word", "redis://svc:word@%s", nil, exitFailure, "NOPERM.*docs/redis.md#permissions"},
		"no script granted":    {"on >word ~* +get +setnx", "redis://svc:word@%s", nil, exitFailure, "NOPERM.*docs/redis.md#permissions"},
		"half of a script":     {"on >word ~* +get +setnx +eval +evalsha", "redis://svc:word@%s", nil, exitFailure, "take charges.*docs/redis.md#permissions"},
		"nobody of that name":  {"on >word", "redis://else:word@%s", nil, exitFailure, "WRONGPASS.*docs/redis.md#connecting"},
		"a script alone":       {"on >word ~* +evalsha", "redis://svc:word@%s", []string{"--key-secret-file", secret}, exitFailure, "NOPERM"},
		"nobody there":         {"on >word", "redis://127.0.0.1:1", nil, exitUnreachable, "refused"},
		"nobody there to take": {"on >word", "redis://127.0.0.1:1", []string{"--key-secret-file", secret}, exitUnreachable, "refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			grants(t, redis, tt.rights)
			file := fileWith(t, strings.Replace(tt.url, "%s", redis.Addr, 1))
			for _, command := range []string{"explain", "key"} {
				var out, said strings.Builder
				args := append([]string{command, "--rules", rules, "--redis-url-file", file, "shop | [api=x]"}, tt.flags...)
				code := run(args, &out, &said)
				if code != tt.code || !matches(tt.says, said.String()) || out.Len() > 0 {
					t.Errorf("%s: got exit code %d, %q and %q, want %d, nothing and %q", command, code, out.String(), said.String(), tt.code, tt.says)
				}
			}
		})
	}
}

// A user who may only decide explains all the same, and says what is missing.
func TestExplainWithoutRightToOverrides(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	grants(t, redis, "on >word "+forDecisions)
	var out, said strings.Builder
	code := run([]string{
		"explain", "--rules", fileWith(t, oneRule), "--redis-url-file", fileWith(t, "redis://svc:word@"+redis.Addr), "shop | [api=x]",
	}, &out, &said)
	if code != exitOK || !strings.Contains(out.String(), "remaining 500") {
		t.Errorf("got exit code %d and %q, want %d and what is left", code, out.String(), exitOK)
	}
	if want := "without the overrides that operators set.*NOPERM.*docs/redis.md#permissions"; !matches(want, said.String()) {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}
