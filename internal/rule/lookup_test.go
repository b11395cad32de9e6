package rule

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readValues stands for a directory: names and contents.
func readValues(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		data, ok := files[name]
		if !ok {
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		}
		return []byte(data), nil
	}
}

// spell writes entries as entries reads them.
func spell(es []Entry) string {
	var parts []string
	for _, e := range es {
		parts = append(parts, e.Key+"="+e.Value)
	}
	return strings.Join(parts, ", ")
}

const lookupRules = `
domain: shop
lookups:
  - {from: api_key, to: tier, default: free, values: {k-1: gold, 2: silver, yes: bronze}}
  - {from: tier, to: region, values: {gold: eu}}
  - {from: user, to: tier, values: {root: staff}}
descriptors:
  - {key: tier, rate_limit: {requests_per_unit: 1, unit: second}}
`

func TestDerive(t *testing.T) {
	t.Parallel()
	for _, profile := range []string{"native", "envoy"} {
		s := load(t, lookupRules+"profile: "+profile)
		lookups := s.Lookups(s.Domains()[0])
		for descriptor, want := range map[string]string{
			"":                               "",
			"path=/":                         "path=/",
			"api_key=k-1":                    "region=eu, tier=gold, api_key=k-1", // the second starts from what the first derived
			"path=/, api_key=2, x=y":         "path=/, tier=silver, api_key=2, x=y",
			"api_key=yes":                    "tier=bronze, api_key=yes",
			"api_key=true":                   "tier=free, api_key=true",
			"api_key=":                       "tier=free, api_key=",
			"tier=gold":                      "region=eu, tier=gold", // nothing to derive it from: it stays as sent
			"tier=gold, api_key=x":           "tier=free, api_key=x", // nobody chooses a tier beside a key
			"api_key=x, tier=gold, tier=a":   "tier=free, api_key=x",
			"tier=a, x=y, tier=b, api_key=2": "x=y, tier=silver, api_key=2",
			"api_key=x, api_key=k-1":         "tier=free, api_key=x, api_key=k-1", // the first of its key is the source
			"user=root":                      "tier=staff, user=root",
			"user=bob":                       "user=bob", // no value, no default
			"user=bob, tier=a":               "user=bob, tier=a",
			"api_key=k-1, user=root":         "region=eu, api_key=k-1, tier=staff, user=root", // a later lookup replaces
			"region=us, api_key=k-1":         "region=eu, tier=gold, api_key=k-1",
		} {
			sent := entries(descriptor)
			before := spell(sent)
			got, _ := lookups.Derive(nil, sent)
			if spell(got) != want {
				t.Errorf("%s: [%s] is matched as [%s], want [%s]", profile, descriptor, spell(got), want)
			}
			if spell(sent) != before {
				t.Errorf("%s: [%s] was written to: [%s]", profile, before, spell(sent))
			}
		}
	}
}

// TestDeriveManyInOneScratch checks that descriptors of one request do not write over each other.
func TestDeriveManyInOneScratch(t *testing.T) {
	t.Parallel()
	s := load(t, lookupRules)
	lookups := s.Lookups(s.Domains()[0])
	var scratch []Entry
	var got [][]Entry
	for i := range 100 {
		var derived []Entry
		derived, scratch = lookups.Derive(scratch, entries(fmt.Sprintf("api_key=k-1, i=%d", i)))
		got = append(got, derived)
	}
	for i, es := range got {
		if want := fmt.Sprintf("region=eu, tier=gold, api_key=k-1, i=%d", i); spell(es) != want {
			t.Errorf("got %s, want %s", spell(es), want)
		}
	}
}

const valuesRules = `
domain: shop
lookups:
  - {from: api_key, to: tier, values_file: keys/shop.csv}
  - {from: user, to: plan, values_file: /etc/plans.csv}
  - {from: host, to: tenant, values: {h: t}}
descriptors:
  - {key: tier, rate_limit: {requests_per_unit: 1, unit: second}}
  - {key: plan, rate_limit: {requests_per_unit: 1, unit: second}}
  - {key: tenant, rate_limit: {requests_per_unit: 1, unit: second}}
`

func TestValuesFile(t *testing.T) {
	t.Parallel()
	reads := 0
	open := readValues(map[string]string{
		"/rules/keys/shop.csv": "\ufeff# keys of the shop\nk-1,gold\r\n\"k,2\",\"sil\"\"ver\"\n\nk-3,gold",
		"/etc/plans.csv":       "bob,pro\n",
	})
	o := Options{ReadValues: func(name string) ([]byte, error) { reads++; return open(name) }}
	s, _, err := Load([]File{{"/rules/a.yaml", []byte(valuesRules)}, {"/rules/b.yaml", []byte(strings.Replace(valuesRules, "shop\n", "two\n", 1))}}, o)
	if err != nil {
		t.Fatal(err)
	}
	if reads != 2 {
		t.Errorf("got %d reads, want one a file", reads)
	}
	if diff := cmp.Diff([]string{"/etc/plans.csv", "/rules/keys/shop.csv"}, s.ValuesFiles()); diff != "" {
		t.Errorf("files to watch (-want +got):\n%s", diff)
	}
	derives := func(s *Snapshot, want map[string]string) {
		t.Helper()
		for _, d := range s.Domains() {
			for descriptor, want := range want {
				if got, _ := s.Lookups(d).Derive(nil, entries(descriptor)); spell(got) != want {
					t.Errorf("domain %s: [%s] is matched as [%s], want [%s]", d.Name, descriptor, spell(got), want)
				}
			}
		}
	}
	old := map[string]string{
		"api_key=k-1": "tier=gold, api_key=k-1", "api_key=k,2": "tier=sil\"ver, api_key=k,2", "api_key=k-3": "tier=gold, api_key=k-3",
		"api_key=k-4": "api_key=k-4", "user=bob": "plan=pro, user=bob", "host=h": "tenant=t, host=h",
	}
	derives(s, old)

	// New values alone: the rules are the same ones, and so are their buckets.
	next, err := s.WithValues([]File{{"/rules/keys/shop.csv", []byte("k-4,gold\n")}, {"/somewhere/else.csv", []byte(`"`)}})
	if err != nil {
		t.Fatal(err)
	}
	derives(next, map[string]string{
		"api_key=k-1": "api_key=k-1", "api_key=k-4": "tier=gold, api_key=k-4", "user=bob": "plan=pro, user=bob", "host=h": "tenant=t, host=h",
	})
	derives(s, old)
	if s.Hash() == next.Hash() {
		t.Error("new values, the same hash")
	}
	if one, two := s.Domain("shop").Match(entries("tier=gold")), next.Domain("shop").Match(entries("tier=gold")); one == nil || one != two || s.Domain("shop") != next.Domain("shop") {
		t.Errorf("new values made new rules: %v and %v", one, two)
	}
	again, err := next.WithValues([]File{{"/rules/keys/shop.csv", []byte(mustRead(t, open, "/rules/keys/shop.csv"))}})
	if err != nil || again.Hash() != s.Hash() {
		t.Errorf("the old values again: got hash %v and error %v, want the old hash %s", again.Hash(), err, s.Hash())
	}
	if diff := cmp.Diff(s.ValuesFiles(), again.ValuesFiles()); diff != "" {
		t.Errorf("files to watch (-want +got):\n%s", diff)
	}

	// A mistake changes nothing.
	bad, err := s.WithValues([]File{{"/rules/keys/shop.csv", []byte("k-4\n")}})
	if errs := Errors(nil); bad != nil || !errors.As(err, &errs) {
		t.Errorf("a bad file: got %v and %v, want an error alone", bad, err)
	}
	derives(s, old)
}

func mustRead(t *testing.T, open func(string) ([]byte, error), name string) string {
	t.Helper()
	data, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestValuesFileMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, data, want string }{
		{"one field", "k-1,gold\nk-2\n", "keys/shop.csv:2:1: want two fields in a line, a value and what is derived from it"},
		{"three fields", "k-1,gold,x\n", "keys/shop.csv:1:1: want two fields in a line, a value and what is derived from it"},
		{"a quote", "k-1,go\"ld\n", `keys/shop.csv:1:7: bare " in non-quoted-field`},
		{"open quote", "\"k-1,gold\n", `keys/shop.csv:1:11: extraneous or missing " in quoted-field`},
		{"twice", "k-1,gold\nk-2,gold\nk-1,silver\n", "keys/shop.csv:3:1: the value is given twice"},
		{"empty", "k-1,\n", "keys/shop.csv:1:5: want what is derived from the value"},
		{"all at once", "k-1\nk-2\n", "keys/shop.csv:1:1: want two fields in a line, a value and what is derived from it\nkeys/shop.csv:2:1: want two fields in a line, a value and what is derived from it"},
		{"too large", strings.Repeat("x", maxValuesBytes+1), "keys/shop.csv:1:1: file of 16777217 bytes: want at most 16777216"},
	} {
		_, _, err := Load([]File{{"a.yaml", []byte(valuesRules)}}, Options{ReadValues: readValues(map[string]string{"keys/shop.csv": c.data, "/etc/plans.csv": ""})})
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got\n%.500v\nwant\n%s", c.name, err, c.want)
		}
	}
	_, _, err := Load([]File{{"a.yaml", []byte(valuesRules)}}, Options{ReadValues: readValues(nil)})
	const want = "a.yaml:4:44: lookups[0].values_file: open keys/shop.csv: file does not exist\na.yaml:5:41: lookups[1].values_file: open /etc/plans.csv: file does not exist"
	if err == nil || err.Error() != want {
		t.Errorf("missing files: got\n%v\nwant\n%s", err, want)
	}
}

// manyValues is a values_file of n values.
func manyValues(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "key-%08d,%s\n", i*7919%n, []string{"free", "pro", "enterprise"}[i%3])
	}
	return b.String()
}

// withLookup adds to the files of manyFiles a lookup in n values.
func withLookup(files []File, n int) ([]File, Options) {
	head := File{"000-lookups.yaml", []byte("domain: shop\nlookups: [{from: api_key, to: tier, values_file: keys.csv}]\n")}
	return append([]File{head}, files...), Options{MergeDomains: true, ReadValues: readValues(map[string]string{"keys.csv": manyValues(n)})}
}

func TestDeriveAndBlockedDoNotAllocate(t *testing.T) {
	files, o := withLookup(manyFiles(100, "native"), 1000)
	files = append(files, File{"blocklist.yaml", []byte(`
domain: shop
blocklist:
  - {key: api_key, any_of: [a, b]}
  - {key: api_key, prefix: evil-}
  - {key: ip, cidr: [203.0.113.0/24, "2001:db8::/32"]}
`)})
	s, _, err := Load(files, o)
	if err != nil {
		t.Fatal(err)
	}
	d := s.Domain("shop")
	lookups := s.Lookups(d)
	scratch := make([]Entry, 0, 16)
	for descriptor, blocked := range map[string]bool{
		"api_key=key-00000007, path=/": false, "api_key=unknown": false, "path=/": false, "api_key=b": true, "api_key=evil-1": true,
		"ip=203.0.113.9": true, "ip=2001:db8::1": true, "ip=198.51.100.1": false,
	} {
		es := entries(descriptor)
		got := false
		if n := testing.AllocsPerRun(100, func() {
			_, scratch = lookups.Derive(scratch[:0], es)
			for _, e := range es {
				got = got || d.Blocked(e) != nil
			}
		}); n != 0 {
			t.Errorf("[%s]: got %v allocations, want 0", descriptor, n)
		}
		if got != blocked {
			t.Errorf("[%s]: got blocked %v, want %v", descriptor, got, blocked)
		}
	}
}

func BenchmarkLoadWithValues(b *testing.B) {
	files, o := withLookup(manyFiles(10_000, "native"), 100_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Load(files, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWithValues(b *testing.B) {
	files, o := withLookup(manyFiles(10_000, "native"), 100_000)
	s, _, err := Load(files, o)
	if err != nil {
		b.Fatal(err)
	}
	values := []File{{"keys.csv", []byte(manyValues(100_000))}}
	for b.Loop() {
		if _, err := s.WithValues(values); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDerive(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		files, o := withLookup(nil, n)
		s, _, err := Load(files, o)
		if err != nil {
			b.Fatal(err)
		}
		lookups := s.Lookups(s.Domain("shop"))
		es := entries("api_key=key-00000007")
		scratch := make([]Entry, 0, 8)
		b.Run(fmt.Sprintf("values=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, scratch = lookups.Derive(scratch[:0], es)
			}
		})
	}
}

// TestLoadIsFastEnough loads 10,000 rules and 100,000 values in less than a second of this process's own time, whatever else the machine does. It does not run beside
// other tests.
func TestLoadIsFastEnough(t *testing.T) {
	if raceEnabled {
		return // some ten times slower; make test runs this without it, too
	}
	files, o := withLookup(manyFiles(10_000, "native"), 100_000)
	least := time.Hour
	for range 3 {
		before := processorTime(t)
		if _, _, err := Load(files, o); err != nil {
			t.Fatal(err)
		}
		least = min(least, processorTime(t)-before)
	}
	t.Logf("%v", least)
	if least > time.Second {
		t.Errorf("got %v of processor time, want at most a second", least)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
