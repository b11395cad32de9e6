package bucket_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/bucket/script"
)

// runScript performs a script on plain states.
func runScript(t *testing.T, path string) {
	t.Helper()
	states := map[string]*bucket.State{}
	script.Run(t, path, func(c script.Charge) bucket.Outcome {
		s := states[c.Bucket]
		if s == nil {
			s = new(bucket.State)
			states[c.Bucket] = s
		}
		return c.Limit.Take(s, c.Now, c.Ask)
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"credit", "window", "log"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			runScript(t, "testdata/"+family+".txt")
		})
	}
}
