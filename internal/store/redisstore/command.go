package redisstore

import (
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

// Command returns the EVALSHA that takes charges, its arguments and all, and the script it runs: what measures Redis alone
// sends it this. The error is that of a request which cannot be sent.
func Command(charges []store.Charge) (evalsha []string, body string, err error) {
	c := newCall()
	if err := c.encode(charges, whole, nil); err != nil {
		return nil, "", err
	}
	var e errand
	e.pack([]*call{c})
	for _, arg := range e.args {
		switch arg := arg.(type) {
		case string:
			evalsha = append(evalsha, arg)
		case *string:
			evalsha = append(evalsha, *arg)
		case []byte:
			evalsha = append(evalsha, string(arg))
		case int:
			evalsha = append(evalsha, strconv.Itoa(arg))
		}
	}
	return evalsha, script, nil
}
