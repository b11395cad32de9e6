package override

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// valid is an override that nothing is wrong with.
func valid() Override {
	return Override{
		Rule: "shop.pro", Action: Limit, Requests: 20, Author: "ann", Reason: "ticket 7", Expires: start.Add(time.Hour),
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*Override)
		want   string // the error, a mistake a line; "": none
	}{
		{"valid", func(*Override) {}, ""},
		{"numbers of its own", func(o *Override) { o.Unit, o.Multiplier, o.Burst = "minute", 5, 7 }, ""},
		{"network", func(o *Override) { o.Rule, o.Action, o.Requests, o.Network = "", Block, 0, "2001:db8::/32" }, ""},
		{"no author", func(o *Override) { o.Author = " " }, "author: want who is responsible"},
		{"no reason", func(o *Override) { o.Reason = "" }, "reason: want why this is done"},
		{"no expiry", func(o *Override) { o.Expires = time.Time{} }, "expires: want when it ends"},
		{"over already", func(o *Override) { o.Expires = start }, "expires: 2026-01-01T00:00:00Z is past"},
		{"too long", func(o *Override) { o.Expires = start.Add(MaxLife + time.Hour) },
			"expires: 2026-02-01T01:00:00Z: want at most 31 days from now"},
		{"no target", func(o *Override) { *o = Override{Action: Block, Author: "a", Reason: "r", Expires: o.Expires} },
			"rule: want the name of a limit, or an entry, or both"},
		{"a value of nothing", func(o *Override) { o.Value = "x" }, "key: want the key of the entry with that value"},
		{"a key alone", func(o *Override) { o.Key = "x" }, "value: want the value of that entry, or a network"},
		{"a value and a network", func(o *Override) { o.Key, o.Value, o.Network = "k", "v", "10.0.0.0/8" },
			"value and network: want one of them"},
		{"no network", func(o *Override) { o.Network = "10.0.0.0/33" }, `network: "10.0.0.0/33": want an address or a CIDR`},
		{"no action", func(o *Override) { o.Action = "" }, `action: "": want limit, exempt or block`},
		{"a block with numbers", func(o *Override) { o.Action = Block }, "action block: want no numbers with it"},
		{"a limit of no rule", func(o *Override) { o.Rule, o.Network = "", "10.0.0.1" },
			"rule: want the name of the limit that is to have other numbers"},
		{"nothing left", func(o *Override) { o.Requests = 0 }, "requests: want 1 or more; to refuse everything, block"},
		{"negative burst", func(o *Override) { o.Burst = -1 }, "burst: -1: want 1 or more"},
		{"no unit", func(o *Override) { o.Unit = "fortnight" },
			`unit: unit "fortnight": want second, minute, hour, day, week, month or year`},
		{"a multiplier of nothing", func(o *Override) { o.Multiplier = 2 }, "unit: want one with a multiplier"},
		{"too long a text", func(o *Override) { o.Reason = strings.Repeat("x", 2000) }, "reason: of 2000 bytes: want at most 1024"},
		{"no text", func(o *Override) { o.Author = "\xff" }, `author: "\xff": want UTF-8`},
		{"everything", func(o *Override) { *o = Override{Expires: start.Add(time.Hour)} }, "author: want who is responsible\n" +
			"reason: want why this is done\nrule: want the name of a limit, or an entry, or both\naction: \"\": want limit, exempt or block"},
	} {
		o := valid()
		tt.change(&o)
		got := ""
		if err := o.Prepare(start); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

// A log remembers every hit: an operator may make it as long as rules may, with its debt, and no longer.
func TestOverOfALog(t *testing.T) {
	t.Parallel()
	log := bucket.Config{Algorithm: bucket.SlidingLog, Hits: 10, Unit: bucket.Hour, Debt: 300}
	for requests, want := range map[uint32]string{
		700: "",
		701: "hits 701: sliding_log remembers every hit: hits + debt must be at most 1000",
	} {
		o := valid()
		o.Requests = requests
		if err := o.Prepare(start); err != nil {
			t.Fatal(err)
		}
		got := ""
		if _, err := o.Over(log); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d:\n got %q\nwant %q", requests, got, want)
		}
	}
}

// What is read again is what was kept.
func TestEncode(t *testing.T) {
	t.Parallel()
	o := valid()
	o.Network, o.Key, o.Unit = "::ffff:10.1.2.3", "ip", "Minute"
	if err := o.Prepare(start); err != nil {
		t.Fatal(err)
	}
	got, err := decode(o.encode())
	if err != nil || *got != o {
		t.Errorf("got %+v, %v, want %+v", got, err, o)
	}
	if want := "limit 20/Minute on shop.pro, ip in 10.1.2.3/32"; o.String() != want {
		t.Errorf("got %q, want %q", o.String(), want)
	}
}

func TestMeets(t *testing.T) {
	t.Parallel()
	entries := []rule.Entry{{Key: "plan", Value: "pro"}, {Key: "remote_address", Value: "::ffff:203.0.113.9"}, {Key: "ip", Value: "203.0.113.x"}}
	for _, tt := range []struct {
		key, value, network string
		want                bool
	}{
		{"", "", "", true},
		{"plan", "pro", "", true},
		{"plan", "PRO", "", false},
		{"tier", "pro", "", false},
		{"", "", "203.0.113.0/24", true},
		{"", "", "203.0.113.9", true},
		{"", "", "::ffff:203.0.113.0/120", true},
		{"", "", "203.0.113.8", false},
		{"", "", "::/0", false},
		{"ip", "", "0.0.0.0/0", false},
	} {
		o := valid()
		o.Key, o.Value, o.Network = tt.key, tt.value, tt.network
		if err := o.Prepare(start); err != nil {
			t.Fatal(err)
		}
		if got := o.Meets(entries); got != tt.want {
			t.Errorf("%s: got %v, want %v", o.Target(), got, tt.want)
		}
	}
}

func TestBefore(t *testing.T) {
	t.Parallel()
	// Each decides before the next.
	order := []Override{
		{Rule: "shop.pro", Key: "user", Value: "u"},
		{Key: "user", Value: "u", Domain: "shop"},
		{Key: "user", Value: "u"},
		{Network: "2001:db8::1"},
		{Rule: "shop.pro", Network: "10.0.0.0/24"},
		{Network: "10.0.0.0/24"},
		{Network: "10.0.0.0/8"},
		{Network: "2001:db8::/32"},
		{Rule: "shop.pro"},
	}
	for i := range order {
		order[i].Action, order[i].Author, order[i].Reason, order[i].Expires = Exempt, "a", "r", start.Add(2*time.Hour)
		if err := order[i].Prepare(start); err != nil {
			t.Fatal(err)
		}
	}
	for i := range order {
		for j := range order {
			if got, want := order[i].Before(&order[j]), i < j; i != j && got != want {
				t.Errorf("%s before %s: got %v, want %v", order[i].Target(), order[j].Target(), got, want)
			}
		}
	}
}
