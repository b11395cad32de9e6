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
	args := append([]string{"EVALSHA", scriptHash, strconv.Itoa(len(c.keys))}, c.keys...)
	return append(args, c.request), script, nil
}
