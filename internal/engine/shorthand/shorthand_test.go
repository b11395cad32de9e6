package shorthand

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

func TestParseRequest(t *testing.T) {
	t.Parallel()
	descriptor := func(entries ...rule.Entry) engine.Descriptor { return engine.Descriptor{Entries: entries} }
	with := func(d engine.Descriptor, change func(*engine.Descriptor)) engine.Descriptor {
		change(&d)
		return d
	}
	ip := descriptor(rule.Entry{Key: "ip", Value: "a"})
	tests := []struct {
		in   string
		want engine.Request
	}{
		{"shop | [ip=a]", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{ip}}},
		{"shop|[ip=a]", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{ip}}},
		{"shop | [plan=gold, user=u1] [ip=a] | hits=2", engine.Request{
			Domain: "shop", Hits: 2,
			Descriptors: []engine.Descriptor{descriptor(rule.Entry{Key: "plan", Value: "gold"}, rule.Entry{Key: "user", Value: "u1"}), ip},
		}},
		{"shop | [ip=a]h0", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
			with(ip, func(d *engine.Descriptor) { d.HasHits = true }),
		}}},
		{"shop | [ip=a]h18446744073709551615", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
			with(ip, func(d *engine.Descriptor) { d.HasHits, d.Hits = true, 1<<64-1 }),
		}}},
		{"shop | [ip=a]h-3", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
			with(ip, func(d *engine.Descriptor) { d.HasHits, d.Refund, d.Hits = true, true, 3 }),
		}}},
		{"shop | [ip=a]h2L5/MINUTE [ip=a]L7/5hour", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
			with(ip, func(d *engine.Descriptor) {
				d.HasHits, d.Hits, d.HasOverride, d.Override = true, 2, true, engine.Override{Requests: 5, Unit: 2}
			}),
			with(ip, func(d *engine.Descriptor) {
				d.HasOverride = true
				d.Override = engine.Override{Requests: 7, Unit: 3, Multiplier: 5, HasMultiplier: true}
			}),
		}}},
		{"shop | [ip=a]L5", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
			with(ip, func(d *engine.Descriptor) { d.HasOverride, d.Override = true, engine.Override{Requests: 5} }),
		}}},
		{`"a | b" | [path="x, y]\xff", "k=1"=v]`, engine.Request{Domain: "a | b", Descriptors: []engine.Descriptor{
			descriptor(rule.Entry{Key: "path", Value: "x, y]\xff"}, rule.Entry{Key: "k=1", Value: "v"}),
		}}},
		{"shop | [cidr=10.0.0.0/8] [q=a=b] [e=]", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{
			descriptor(rule.Entry{Key: "cidr", Value: "10.0.0.0/8"}),
			descriptor(rule.Entry{Key: "q", Value: "a=b"}),
			descriptor(rule.Entry{Key: "e"}),
		}}},
		{"shop | []", engine.Request{Domain: "shop", Descriptors: []engine.Descriptor{{}}}},
		{"shop |", engine.Request{Domain: "shop"}},
		{" | [ip=a]", engine.Request{Descriptors: []engine.Descriptor{ip}}},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			t.Parallel()
			got, err := ParseRequest(test.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("wrong request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRequestErrors(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		{"shop", `request "shop": column 5: want | and descriptors after the domain`},
		{"shop | [ip", `request "shop | [ip": column 11: want key=value`},
		{"shop | [ip=a", `request "shop | [ip=a": column 13: want a comma or the end of the descriptor`},
		{`shop | [ip="a]`, `request "shop | [ip=\"a]": column 12: a quoted string without its end`},
		{"shop | [ip=a]hx", `request "shop | [ip=a]hx": column 15: want a number of 0…18446744073709551615`},
		{"shop | [ip=a] | hits=5000000000", `request "shop | [ip=a] | hits=5000000000": column 22: want a number of 0…4294967295`},
		{"shop | [ip=a]L5/week", `request "shop | [ip=a]L5/week": column 17: unit "week": want second, minute, hour, day, month or year`},
		{"shop | [ip=a] ip=b", `request "shop | [ip=a] ip=b": column 15: want [key=value, …] or | hits=N, got "ip=b"`},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			t.Parallel()
			_, err := ParseRequest(test.in)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestParseParts(t *testing.T) {
	t.Parallel()
	d, err := ParseDescriptor("plan=gold, user=a]b")
	want := engine.Descriptor{Entries: []rule.Entry{{Key: "plan", Value: "gold"}, {Key: "user", Value: "a]b"}}}
	if diff := cmp.Diff(want, d); err != nil || diff != "" {
		t.Errorf("descriptor: error %v, (-want +got):\n%s", err, diff)
	}
	if _, err := ParseDescriptor("plan"); err == nil {
		t.Error("descriptor without a value: got no error")
	}
	o, err := ParseOverride("10/minute")
	if diff := cmp.Diff(engine.Override{Requests: 10, Unit: 2}, o); err != nil || diff != "" {
		t.Errorf("override: error %v, (-want +got):\n%s", err, diff)
	}
	if _, err := ParseOverride("10/minute,"); err == nil {
		t.Error("override with a rest: got no error")
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	v := &engine.Verdict{Over: true, Statuses: []engine.Status{
		{HasLimit: true, Remaining: 9}, {HasLimit: true, Over: true}, {}, {Unlimited: true, Remaining: 1<<32 - 1},
	}}
	const written = "OVER {OK r9, OVER r0, none, OK r4294967295}"
	if got := FormatAnswer(v); got != written {
		t.Errorf("format: got %q, want %q", got, written)
	}
	tests := []struct {
		in      string
		matches bool
	}{
		{written, true},
		{"OVER", true},
		{"OVER {r9, OVER, none, OK}", true},
		{"OK", false},
		{"OVER {r9}", false},
		{"OVER {r8, OVER, none, OK}", false},
		{"OVER {OVER r9, OVER, none, OK}", false},
		{"OVER {none, OVER, none, OK}", false},
		{"OVER {r9, OVER, OK, OK}", false},
	}
	for _, test := range tests {
		a, err := ParseAnswer(test.in)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := a.Matches(v); got != test.matches {
			t.Errorf("%s matches %s: got %t, want %t", test.in, written, got, test.matches)
		}
	}
	if (Answer{}).Matches(v) {
		t.Error("the zero answer, which is OK, matches a denial")
	}
	for _, bad := range []string{"", "NO", "OK {", "OK {}", "OK {x}", "OK {r}", "OK {r-1}", "OK {OK r1 r2}", "OK {r1,}"} {
		if _, err := ParseAnswer(bad); err == nil {
			t.Errorf("answer %q: got no error", bad)
		}
	}
}
