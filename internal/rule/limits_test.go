package rule

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// slow is what no load takes on any machine, however busy, unless its cost grows as it must not: each takes well below a second on an idle one.
const slow = time.Minute

// TestTrapsAreRefusedFast loads files made to cost much. It does not run beside other tests, since it counts what is allocated.
func TestTrapsAreRefusedFast(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9))
	}
	deep := "domain: d\n"
	for i := range 70 {
		deep += strings.Repeat("  ", i) + "descriptors:\n" + strings.Repeat("  ", i) + "- key: k\n"
	}
	for _, c := range []struct {
		name, yaml, want string
	}{
		{"alias bomb", bomb + "domain: *a8\n", "alias *a8: want the value itself"},
		{"alias bomb in a list", "domain: d\ndescriptors: &a [*a, *a]\n", "alias *a: want the value itself"},
		{"200,000 brackets", strings.Repeat("[", 200_000), "exceeded max depth"},
		{"200,000 braces", strings.Repeat("{a: ", 200_000), "exceeded max depth"},
		{"deep metadata", "domain: d\ndescriptors: [{key: a, metadata: " + strings.Repeat("{a: ", 1000) + "1" + strings.Repeat("}", 1000) + "}]", "exceeded max depth"},
		{"70 levels", deep, "more than 64 levels of descriptors"},
		{"10 MiB", strings.Repeat("#", 10<<20), "file of 10485760 bytes: want at most 1048576"},
		{"100,000 mistakes", "domain: d\ndescriptors:\n" + strings.Repeat("- {}\n", 100_000), "more than 1000 errors; the rest are not shown"},
		{"a long path", "domain: d\ndescriptors: [{key: " + strings.Repeat("k", 5000) + "}]\n", "path of 5002 bytes: want at most 4096"},
		{"not text", "domain: \"\\xff\xff\"\n", "error loading config file: yaml: "},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		_, _, err := Load([]File{{"rules.yaml", []byte(c.yaml)}}, Options{})
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %.300v, want %q in it", c.name, err, c.want)
		}
		if took > slow {
			t.Errorf("%s: took %v", c.name, took)
		}
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 512 {
			t.Errorf("%s: allocated %d MiB", c.name, mib)
		}
		t.Logf("%s: %v, %d KiB allocated", c.name, took.Round(time.Microsecond), (after.TotalAlloc-before.TotalAlloc)>>10)
	}
}

// TestLoadWorstFiles loads valid files that are as large, and as awkward, as a file may be.
func TestLoadWorstFiles(t *testing.T) {
	var nested, star, shared, fan bytes.Buffer
	for _, b := range []*bytes.Buffer{&nested, &star, &shared, &fan} {
		b.WriteString("domain: d\ndescriptors:\n")
	}
	for i := range 1000 {
		fmt.Fprintf(&nested, "- {key: k, value: '%s*'}\n", strings.Repeat("a", i))
		fmt.Fprintf(&star, "- {key: k, value: '%s%d'}\n", strings.Repeat("a*", 100), i)
		fmt.Fprintf(&shared, "- {key: k, value: '*%d*'}\n", i)
	}
	for i := range 20_000 {
		fmt.Fprintf(&fan, "- {key: k%d, descriptors: [{key: a}]}\n", i)
	}
	var list, block bytes.Buffer
	list.WriteString("domain: d\ndescriptors:\n- key: k\n  any_of: [")
	block.WriteString("domain: d\nblocklist:\n")
	for i := range 40_000 {
		fmt.Fprintf(&list, "a%d, ", i)
	}
	list.WriteString("z]\n  descriptors:\n")
	for i := range 10_000 {
		fmt.Fprintf(&list, "  - {key: c, value: %d}\n", i)
		fmt.Fprintf(&block, "- {key: k, cidr: [10.%d.%d.0/24, %x::/64]}\n- {key: k, prefix: '%s'}\n", i>>8, i&255, i+1, strings.Repeat("a", i%30+1))
	}
	for name, b := range map[string]*bytes.Buffer{"a long list above many rules": &list, "a long blocklist": &block, "prefixes of prefixes": &nested, "many stars": &star, "one prefix": &shared, "20,000 rules": &fan} {
		for _, profile := range []Profile{Native, Envoy} {
			start := time.Now()
			s, _, err := Load([]File{{"rules.yaml", b.Bytes()}}, Options{DefaultProfile: profile})
			if err != nil {
				t.Errorf("%s: %.300v", name, err)
				continue
			}
			loaded := time.Since(start)
			hostile := []Entry{{"k", strings.Repeat("a", 4096)}}
			start = time.Now()
			for range 100 {
				s.Domains()[0].Match(hostile)
				s.Domains()[0].Blocked(hostile[0])
			}
			if matched := time.Since(start) / 100; loaded > slow || matched > 100*time.Millisecond {
				t.Errorf("%s, %s: loading took %v and a match %v", name, profile, loaded, matched)
			} else {
				t.Logf("%s, %s: loading took %v and a match %v", name, profile, loaded, matched)
			}
		}
	}
}

// manyRules is a file of n rules three levels deep, with patterns beside exact values.
func manyRules(n int, profile string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "domain: shop\nprofile: %s\ndescriptors:\n", profile)
	for i := range n {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "- {key: tier, value: t%d, descriptors: [{key: path, value: '/api/%d/*', descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]}]}\n", i, i)
		case 1:
			fmt.Fprintf(&b, "- {key: path, value: /exact/%d, rate_limit: {unit: second, requests_per_unit: 5}}\n", i)
		case 2:
			fmt.Fprintf(&b, "- {key: path, value: '/wild/%d/*', rate_limit: {unit: second, requests_per_unit: 5}}\n", i)
		case 3:
			fmt.Fprintf(&b, "- {key: host, value: '*.tenant-%d.example.com', rate_limit: {unit: second, requests_per_unit: 5}}\n", i)
		}
	}
	return b.Bytes()
}

// manyFiles cuts manyRules into files of less than 1 MiB.
func manyFiles(n int, profile string) []File {
	var files []File
	head, rest, _ := bytes.Cut(manyRules(n, profile), []byte("descriptors:\n"))
	for len(rest) > 0 {
		end := min(len(rest), maxFileBytes-1000)
		end = bytes.LastIndexByte(rest[:end], '\n') + 1
		files = append(files, File{fmt.Sprintf("%03d.yaml", len(files)), fmt.Appendf(nil, "%sdescriptors:\n%s", head, rest[:end])})
		rest = rest[end:]
	}
	return files
}

func loadMany(t testing.TB, n int, profile string) *Snapshot {
	t.Helper()
	s, _, err := Load(manyFiles(n, profile), Options{MergeDomains: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// requestsOf are descriptors that reach rules of manyRules(n), by what they exercise.
func requestsOf(n int) map[string][]Entry {
	last := n / 4 * 4
	return map[string][]Entry{
		"exact":    {{"path", fmt.Sprintf("/exact/%d", last-3)}},
		"wildcard": {{"path", fmt.Sprintf("/wild/%d/x", last-2)}},
		"suffix":   {{"host", fmt.Sprintf("www.tenant-%d.example.com", last-1)}},
		"deep":     {{"tier", fmt.Sprintf("t%d", last-4)}, {"path", fmt.Sprintf("/api/%d/x", last-4)}, {"user", "alice"}},
		"none":     {{"path", "/wild/unknown"}},
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	for _, profile := range []string{"native", "envoy"} {
		d := loadMany(t, 1000, profile).Domains()[0]
		for name, es := range requestsOf(1000) {
			r := d.Match(es)
			if (r == nil) != (name == "none") {
				t.Errorf("%s, %s: %q reaches %v", profile, name, es, r)
			}
			values := make([]string, 0, 8)
			if n := testing.AllocsPerRun(100, func() {
				if r := d.Match(es); r != nil {
					values = r.KeyValues(values[:0], es)
					r.MetricPath(es)
				}
			}); n != 0 {
				t.Errorf("%s, %s: got %v allocations a match, want 0", profile, name, n)
			}
		}
	}
	d := load(t, "domain: d\ndescriptors: [{key: ip, normalize: {ipv6: 64}, rate_limit: {unit: hour, requests_per_unit: 5}}]").Domains()[0]
	for _, c := range []struct {
		address string
		want    float64
	}{{"198.51.100.7", 0}, {"not an address", 0}, {"2001:db8::1", 1}} {
		es := []Entry{{"ip", c.address}}
		values := make([]string, 0, 8)
		if n := testing.AllocsPerRun(100, func() { values = d.Match(es).KeyValues(values[:0], es) }); n > c.want {
			t.Errorf("%s: got %v allocations, want at most %v", c.address, n, c.want)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, profile := range []string{"native", "envoy"} {
		for _, n := range []int{40, 10_000, 100_000} {
			d := loadMany(b, n, profile).Domains()[0]
			for _, name := range []string{"exact", "wildcard", "suffix", "deep", "none"} {
				es := requestsOf(n)[name]
				b.Run(fmt.Sprintf("%s/%s/rules=%d", profile, name, n), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						d.Match(es)
					}
				})
			}
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	files := manyFiles(10_000, "native")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Load(files, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
