package script

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

func TestLine(t *testing.T) {
	t.Parallel()
	var s bucket.State
	p := play{
		zero: time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC), ticks: map[string]int64{},
		take: func(c Charge) bucket.Outcome { return c.Limit.Take(&s, c.Now, c.Ask) },
	}
	// In order: each line builds on those before.
	for _, tt := range []struct{ line, answer, err string }{
		{"", "", ""},
		{"at 0s peek", "", "no limit yet"},
		{"limit token_bucket 10 per second burst", "", `"": want a number`},
		{"limit token_bucket ten per second", "", `"ten": want a number`},
		{"limit token_bucket 10 an hour", "", `want "per" before "an hour"`},
		{"limit token_bucket 10 per second sometimes", "", `"sometimes": not a part of a limit`},
		{"limit token_bucket 10 per fortnight", "", `unit "fortnight": want second, minute, hour, day, week, month or year`},
		{"limit token_bucket 10 per second max_delay 1s", "", "max_delay 1s: only leaky_bucket has one"},
		{"limit token_bucket 10 per second", "", ""},
		{"at 0s take 4 as lunch", "allowed remaining 6 reset 400ms", ""},
		{"at 0s take 7", "denied remaining 6 retry 100ms reset 400ms", ""},
		{"at 0s take 7 at least 2", "allowed granted 6 remaining 0 reset 1s", ""},
		{"at 0s take 11", "denied remaining 0 retry never reset 1s", ""},
		{"at 0s give back 1 of lunch", "allowed remaining 1 reset 900ms", ""},
		{"at 0s give back 1 of supper", "", `"supper": no grant was called so`},
		{"from 0s to 1s every 50ms take 1", "10 allowed, 10 denied, first denied at 50ms", ""},
		{"at noon peek", "", `"noon": want a duration such as 1.5s`},
		{"at 0s steal 3", "", `"steal 3": want take, peek, report, count or give back`},
		{"at 0s take 3 please", "", `"please": more than was expected`},
		{"wait 3s", "", `"wait": want limit, bucket, clock, at or from`},
	} {
		answer, err := p.line(tt.line)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if answer != tt.answer || message != tt.err {
			t.Errorf("%s\n got %q, %q\nwant %q, %q", tt.line, answer, message, tt.answer, tt.err)
		}
	}
}
