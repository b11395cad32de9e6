package rule

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestBlocked(t *testing.T) {
	t.Parallel()
	s, _, err := Load([]File{{"a.yaml", []byte(`
domain: shop
blocklist:
  - {key: user, value: mallory, reason: one}
  - {key: user, any_of: [mallory, trudy], reason: two}
  - {key: user, prefix: bot-, reason: bots}
  - {key: user, prefix: bot-good-, reason: good bots}
  - {key: user, suffix: .invalid, reason: suffix}
  - {key: remote_address, cidr: 203.0.113.0/24, reason: "scraper, ticket 4711"}
`)}, {"b.yaml", []byte(`
domain: shop
blocklist:
  - {key: remote_address, cidr: [203.0.113.0/24, 203.0.113.128/25, "2001:db8::/32"], reason: b}
  - {key: 7, value: 8}
descriptors:
  - key: user
`)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := s.Domain("shop")
	for entry, want := range map[Entry]string{
		{"user", "mallory"}:              "one",
		{"user", "trudy"}:                "two",
		{"user", "Mallory"}:              "",
		{"user", ""}:                     "",
		{"user", "bot-7"}:                "bots",
		{"user", "bot-good-7"}:           "good bots", // the longest speaks
		{"user", "bot-a-host.invalid"}:   "suffix",
		{"user", "a.invalid"}:            "suffix",
		{"user_mallory", ""}:             "",
		{"remote_address", "mallory"}:    "",
		{"7", "8"}:                       "no reason",
		{"remote_address", "10.0.0.1"}:   "",
		{"remote_address", "not one"}:    "",
		{"remote_address", "2001:DB8::"}: "b",
		// The same address in all its spellings (C39).
		{"remote_address", "203.0.113.7"}:           "scraper, ticket 4711",
		{"remote_address", "::ffff:203.0.113.7"}:    "scraper, ticket 4711",
		{"remote_address", "::FFFF:cb00:7107"}:      "scraper, ticket 4711",
		{"remote_address", "0:0:0:0:0:ffff:cb00:7"}: "",
		{"remote_address", "203.0.113.200"}:         "b",
		{"remote_address", "203.0.113.7:443"}:       "",
	} {
		got := ""
		if b := d.Blocked(entry); b != nil {
			if got = b.Reason; got == "" {
				got = "no reason"
			}
		}
		if got != want {
			t.Errorf("%v: got %q, want %q", entry, got, want)
		}
	}
	if n := len(d.Blocks()); n != 8 {
		t.Errorf("got %d entries, want the 8 of both files", n)
	}
	if b := d.Blocked(Entry{"remote_address", "203.0.113.7"}); b.File != "a.yaml" || b.Line != 9 || b.Match != "cidr(203.0.113.0/24)" || b.Key != "remote_address" {
		t.Errorf("got %+v, want where it is listed, and how", b)
	}
}

// TestBlockSaysHowItIsListed checks that people learn how an entry is listed, and no value that may be a secret.
func TestBlockSaysHowItIsListed(t *testing.T) {
	t.Parallel()
	for by, want := range map[string]string{
		"value: s3cret": "value", "any_of: [s3cret, t0ken]": "any_of", "prefix: Bad": "prefix(Bad)", "suffix: .invalid": "suffix(.invalid)",
		"cidr: [10.0.0.0/8, '::ffff:192.0.2.1']": "cidr(10.0.0.0/8,192.0.2.1/32)",
	} {
		if got := load(t, "domain: d\nblocklist: [{key: k, "+by+"}]").Domains()[0].Blocks()[0].Match; got != want {
			t.Errorf("%s: got %q, want %q", by, got, want)
		}
	}
}

// TestBlockedIsWhatTheListSays draws lists and entries, and compares with looking at every line of the list.
func TestBlockedIsWhatTheListSays(t *testing.T) {
	t.Parallel()
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab1.:")), 1, 5, -1)
	network := rapid.Custom(func(t *rapid.T) string {
		ip := netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"), rapid.Byte().Draw(t, "d")})
		return netip.PrefixFrom(ip, rapid.IntRange(8, 32).Draw(t, "bits")).Masked().String()
	})
	rapid.Check(t, func(t *rapid.T) {
		type line map[string]string
		var list []line
		for range rapid.IntRange(0, 8).Draw(t, "lines") {
			l := line{"key": rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"), "reason": strconv.Itoa(len(list))}
			switch by := rapid.SampledFrom([]string{"value", "prefix", "suffix", "cidr"}).Draw(t, "by"); by {
			case "cidr":
				l[by] = network.Draw(t, "network")
			default:
				l[by] = text.Draw(t, "text")
			}
			list = append(list, l)
		}
		data, err := json.Marshal(map[string]any{"domain": "d", "blocklist": list})
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := Load([]File{{"rules.json", data}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := Entry{rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "entry's key"), text.Draw(t, "value")}
		if rapid.Bool().Draw(t, "an address") {
			e.Value = netip.MustParsePrefix(network.Draw(t, "address")).Addr().String()
		}
		ip, err := netip.ParseAddr(e.Value)
		want := map[string]bool{}
		for _, l := range list {
			listed := l["value"] == e.Value || l["prefix"] != "" && strings.HasPrefix(e.Value, l["prefix"]) || l["suffix"] != "" && strings.HasSuffix(e.Value, l["suffix"]) ||
				l["cidr"] != "" && err == nil && netip.MustParsePrefix(l["cidr"]).Contains(ip)
			if listed && l["key"] == e.Key {
				want[l["reason"]] = true
			}
		}
		got := s.Domains()[0].Blocked(e)
		if (got != nil) != (len(want) > 0) || got != nil && !want[got.Reason] {
			t.Fatalf("%s\n%v: got %+v, want one of %v", data, e, got, want)
		}
	})
}

// TestEmpty tells rules that decide something from those that do not.
func TestEmpty(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]bool{
		"domain: d":                  true,
		"domain: d\ndescriptors: []": true,
		"domain: d\nblocklist: [{key: a, value: b}]": false,
		"domain: d\ndescriptors: [{key: a}]":         false,
	} {
		if got := load(t, rules).Empty(); got != want {
			t.Errorf("%q: got empty %v, want %v", rules, got, want)
		}
	}
	if s, _, err := Load(nil, Options{}); err != nil || !s.Empty() {
		t.Errorf("no files: got %v, %v, want an empty snapshot", s, err)
	}
}

func BenchmarkBlocked(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		var rules strings.Builder
		rules.WriteString("domain: d\nblocklist:\n")
		for i := range n {
			fmt.Fprintf(&rules, "  - {key: ip, cidr: 10.%d.%d.0/24}\n  - {key: user, value: u-%d}\n  - {key: user, prefix: bot-%d-}\n", i>>8, i&255, i, i)
		}
		d := load(b, rules.String()).Domains()[0]
		for _, e := range []Entry{{"ip", "10.0.3.7"}, {"ip", "198.51.100.1"}, {"user", "u-3"}, {"user", "bot-3-x"}, {"user", "alice"}} {
			b.Run(fmt.Sprintf("%s=%s/entries=%d", e.Key, e.Value, 3*n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					d.Blocked(e)
				}
			})
		}
	}
}
