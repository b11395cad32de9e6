package script

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
)

var rewrite = flag.Bool("rewrite", false, "write the answers into testdata/*.txt; read the diff as code")

// Charge is one ask of a script.
type Charge struct {
	Limit  *bucket.Limit
	Bucket string // the file and the bucket's name in it: a store makes a key of it
	Now    int64  // microseconds since the Unix epoch
	Ask    bucket.Ask
}

// Run performs the script in the file path on buckets that take keeps: take answers one charge, as the only one of its
// request, and may leave Changed and TTL of the outcome zero. With the flag -rewrite the answers are written into the
// file instead of being compared.
func Run(t *testing.T, path string, take func(Charge) bucket.Outcome) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := play{take: take, file: path, bucket: path, ticks: map[string]int64{}}
	p.zero = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		code, comment, _ := strings.Cut(line, "#")
		code, want, _ := strings.Cut(code, "->")
		want = strings.TrimSpace(want)
		got, err := p.line(code)
		switch {
		case err != nil:
			t.Fatalf("%s:%d: %s: %v", path, i+1, strings.TrimSpace(line), err)
		case got == want:
		case *rewrite:
			lines[i] = strings.TrimRight(code, " ") + " -> " + got
			if comment != "" {
				lines[i] += "  #" + comment
			}
		default:
			t.Errorf("%s:%d: %s\n got %s\nwant %s", path, i+1, strings.TrimSpace(code), got, want)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// play is a script under way.
type play struct {
	take   func(Charge) bucket.Outcome
	file   string
	limit  *bucket.Limit
	bucket string
	zero   time.Time        // 0s
	ticks  map[string]int64 // of grants that were given a name
}

// line performs one line and returns its answer, "" if it has none.
func (p *play) line(code string) (string, error) {
	f := &fields{words: strings.Fields(code)}
	answer := ""
	switch {
	case len(f.words) == 0:
	case f.is("limit"):
		p.limit = f.limit()
	case f.is("bucket"):
		p.bucket = p.file + "/" + strings.Join(f.words, " ")
	case f.is("clock"):
		zero, err := time.Parse(time.RFC3339, f.next())
		if err != nil {
			return "", err
		}
		p.zero = zero
	case p.limit == nil:
		f.fail("no limit yet")
	case f.is("at"):
		now := p.zero.Add(f.duration())
		a, name := f.ask(p.limit.Config().MaxDelay, p.ticks)
		if f.err == nil {
			o := p.ask(now, a)
			p.ticks[name] = o.Tick
			answer = p.answer(a, o)
		}
	case f.is("from"):
		from := f.duration()
		f.want("to")
		to := f.duration()
		f.want("every")
		every := f.duration()
		a, _ := f.ask(p.limit.Config().MaxDelay, p.ticks)
		if f.err == nil && every > 0 {
			answer = p.many(from, to, every, a)
		}
	default:
		f.fail("%q: want limit, bucket, clock, at or from", f.next())
	}
	return answer, f.err
}

func (p *play) ask(now time.Time, a bucket.Ask) bucket.Outcome {
	return p.take(Charge{p.limit, p.bucket, bucket.Micros(now), a})
}

// many asks again and again and counts.
func (p *play) many(from, to, every time.Duration, a bucket.Ask) string {
	var allowed, denied int
	var first time.Duration
	for d := from; d < to; d += every {
		if p.ask(p.zero.Add(d), a).Allowed {
			allowed++
		} else if denied++; denied == 1 {
			first = d
		}
	}
	s := fmt.Sprintf("%d allowed, %d denied", allowed, denied)
	if denied > 0 {
		s += fmt.Sprintf(", first denied at %v", first)
	}
	return s
}

// answer writes an outcome as scripts do.
func (p *play) answer(a bucket.Ask, o bucket.Outcome) string {
	var s strings.Builder
	s.WriteString("denied")
	expected := int64(0)
	if o.Allowed {
		s.Reset()
		s.WriteString("allowed")
		expected = a.Hits
	}
	if o.Granted != expected {
		fmt.Fprintf(&s, " granted %d", o.Granted)
	}
	fmt.Fprintf(&s, " remaining %d", o.Remaining)
	switch {
	case o.RetryAfter == -1:
		s.WriteString(" retry never")
	case o.RetryAfter != 0:
		fmt.Fprintf(&s, " retry %v", bucket.Wait(o.RetryAfter))
	}
	fmt.Fprintf(&s, " reset %v", bucket.Wait(o.ResetAfter))
	if o.Delay != 0 {
		fmt.Fprintf(&s, " delay %v", bucket.Wait(o.Delay))
	}
	return s.String()
}
