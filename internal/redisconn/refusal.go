package redisconn

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// RefusedError is what a Redis that was reached says to a command that it will not carry out: not now, and not later
// unless somebody changes the URL, the user's rights or what it holds.
type RefusedError struct {
	Err    error  // with Redis's own words in it
	advice string // what is to be changed; "": they say it
}

// Error returns Redis's words, and what is to be changed.
func (e *RefusedError) Error() string {
	if e.advice == "" {
		return e.Err.Error()
	}
	return strings.TrimSuffix(e.Err.Error(), ".") + "; " + e.advice
}

// Unwrap returns the error without advice.
func (e *RefusedError) Unwrap() error { return e.Err }

// passing begin the answers of a Redis that will do what it is asked once it has loaded, elected or ended something.
var passing = []string{"BUSY ", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN", "max number of clients reached"}

const permissions = "docs/redis.md#permissions has what the user must be granted"

// advices are by what an answer begins with.
var advices = []struct{ code, advice string }{
	{"NOPERM", permissions},
	{"The user executing the script can't", permissions}, // Redis 7.0
	{"NOAUTH", "want a user or a password that it knows: docs/redis.md#connecting"},
	{"WRONGPASS", "want a user and a password that it knows: docs/redis.md#connecting"},
	{"WRONGTYPE", "a key of ratelimitd holds something else: docs/redis.md#keys"},
	{"READONLY", "want the master: its own URL, or one of redis-sentinel://"},
	{"MOVED", "nodes of a Redis Cluster want a URL of redis-cluster://"},
	{"CROSSSLOT", "nodes of a Redis Cluster want a URL of redis-cluster://"},
}

// Refusal returns the error of a command as a *RefusedError if it is one. It returns nil for one of a Redis that was not
// reached, did not answer in time, or cannot answer now.
func Refusal(err error) *RefusedError {
	begins := func(code string) bool { return redis.HasErrorPrefix(err, code) }
	if answer := redis.Error(nil); !errors.As(err, &answer) || slices.ContainsFunc(passing, begins) {
		return nil
	}
	if _, ok := errors.AsType[*RefusedError](err); ok {
		return &RefusedError{err, ""} // its words are there
	}
	for _, a := range advices {
		if begins(a.code) {
			return &RefusedError{err, a.advice}
		}
	}
	return &RefusedError{err, ""}
}
