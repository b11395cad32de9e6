package redisstore

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/store"
)

// token is a comment, a string, a number, a name, or an operator of Lua.
var token = regexp.MustCompile(`--[^\n]*|'[^'\n]*'|"[^"\n]*"|\d[\w.]*|[A-Za-z_]\w*|\.\.\.?|[~=<>]=|\S`)

// luaTokens returns the tokens of text but for comments.
func luaTokens(text string) []string {
	var tokens []string
	for _, t := range token.FindAllString(text, -1) {
		if !strings.HasPrefix(t, "--") {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// luaFaults returns what may lose digits of a number: literals that are no integers, conversions to text but for
// string.format, the .. operator, and division that is not at once rounded by floor.
func luaFaults(text string) []string {
	var faults []string
	var calls []string // the names before the open parentheses
	last := ""
	for _, t := range luaTokens(text) {
		switch {
		case t == "(":
			calls = append(calls, last)
		case t == ")" && len(calls) > 0:
			calls = calls[:len(calls)-1]
		case t == "tostring", t == "..", t == "fmod", t == "cjson", t == "cmsgpack":
			faults = append(faults, t)
		case t == "/" && (len(calls) == 0 || calls[len(calls)-1] != "floor"):
			faults = append(faults, "/ outside of floor()")
		case t[0] >= '0' && t[0] <= '9' && strings.Trim(t, "0123456789") != "":
			faults = append(faults, t)
		}
		last = t
	}
	return faults
}

func TestLuaKeepsToIntegers(t *testing.T) {
	t.Parallel()
	if faults := luaFaults(script); len(faults) > 0 {
		t.Errorf("the script: got %q, want nothing that loses digits", faults)
	}
	for text, want := range map[string]string{
		"x = a / b":                 "/ outside of floor()",
		"x = floor(max(a / b, 1))":  "/ outside of floor()",
		"x = floor(a / b)":          "",
		"x = 1.5":                   "1.5",
		"x = 1e9":                   "1e9",
		"return 'a' .. n":           "..",
		"return tostring(n)":        "tostring",
		"-- a / b .. c\nx = 'a..b'": "",
	} {
		if got := strings.Join(luaFaults(text), " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestInline(t *testing.T) {
	t.Parallel()
	const text = "local TEN, A_B = 2 * 5, '<I7' -- why\nlocal ten = TEN -- TENS\nreturn f(A_B, KEYS[ten], -TEN)\n"
	if got, want := inline(text), "\nlocal ten = (2 * 5) -- TENS\nreturn f(('<I7'), KEYS[ten], -(2 * 5))\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if left := constants.FindString(script); left != "" {
		t.Errorf("the script: got %q, want no constants", left)
	}
}

// TestStructIsExact packs numbers as the script does and compares what Redis makes of them.
func TestStructIsExact(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	for bits := range 54 {
		for _, v := range []int64{1<<bits - 1, 1 << bits, 1<<bits + 1} {
			if v > maxExact {
				continue
			}
			packed := string(append7(nil, v))
			// The number that Redis unpacks is told by format, which is exact, and packed again.
			got, err := client.Eval(context.Background(),
				"local v = struct.unpack('<I7', ARGV[1]) return {string.format('%d', v), struct.pack('<I7', v), string.format('%d', struct.unpack('<i7', ARGV[2]))}",
				nil, packed, string(append7(nil, -v))).StringSlice()
			if err != nil {
				t.Fatal(err)
			}
			want := []string{strconv.FormatInt(v, 10), packed, strconv.FormatInt(-v, 10)}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%d: got %q, want %q", v, got, want)
				}
			}
		}
	}
}

func TestRequestAllocatesOnce(t *testing.T) {
	limit, err := bucket.New(bucket.Config{Hits: 10, Unit: bucket.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c := newCall()
	charges := []store.Charge{{Limit: limit, Hits: 1}, {Limit: limit, Hits: 2}, {Limit: limit, Hits: 3}}
	out := make([]store.Decision, len(charges))
	c.reply = make([]byte, answerLen*len(charges))
	got := testing.AllocsPerRun(100, func() {
		if err := c.encode(charges, whole, nil); err != nil {
			t.Fatal(err)
		}
		c.decode(out)
	})
	if got > 1 {
		t.Errorf("encode and decode: got %v allocations, want 1", got)
	}
}

// TestScriptErrsOnNothingItIsTold sends numbers of every size in every field of a charge: the script answers.
func TestScriptErrsOnNothingItIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := New(Options{URL: server.URL(), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	limits := []bucket.Config{
		{Hits: 10, Unit: bucket.Minute}, {Algorithm: bucket.LeakyBucket, Hits: 10, Unit: bucket.Minute, MaxDelay: time.Second},
		{Algorithm: bucket.SlidingWindow, Hits: 10, Unit: bucket.Minute}, {Algorithm: bucket.SlidingLog, Hits: 10, Unit: bucket.Minute, Debt: 3},
		{Algorithm: bucket.FixedWindow, Hits: 10, Unit: bucket.Day, Calendar: time.UTC},
	}
	edges := []int64{0, 1, -1, 9, 10, 11, 1 << 31, 1 << 32, 1<<53 - 1, 1 << 53, 1<<63 - 1, -1 << 63}
	for i, config := range limits {
		limit, err := bucket.New(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, hits := range edges {
			for _, other := range edges {
				c := store.Charge{
					Key: store.Key{1: byte(i)}, Limit: limit, Hits: hits, AtLeast: other, Tick: other,
					MaxDelay: time.Duration(other), Vote: store.Vote(other), Book: store.Book(uint64(other) % 3),
				}
				out := make([]store.Decision, 2)
				if err := s.Take(context.Background(), []store.Charge{c, c}, out); err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
				for _, d := range out {
					if d.Remaining < 0 || d.Remaining > bucket.MaxHits || d.Granted > bucket.MaxHits || d.RetryAfter < bucket.Never || d.ResetAfter < 0 || d.Delay < 0 {
						t.Errorf("%+v: got %+v, want numbers in range", c, d)
					}
				}
			}
		}
	}
}
