package redisstore

import (
	"fmt"

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
	return e.words(), script, nil
}

// words returns the command as it is sent.
func (e *errand) words() []string {
	words := make([]string, len(e.args))
	for i, arg := range e.args {
		switch arg := arg.(type) {
		case *string:
			words[i] = *arg
		case []byte:
			words[i] = string(arg)
		default:
			words[i] = fmt.Sprint(arg)
		}
	}
	return words
}
