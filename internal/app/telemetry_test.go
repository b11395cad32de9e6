package app_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
)

// sample returns the value of a series in a page of metrics, written as there; 0 if it is not there.
func sample(metrics, series string) float64 {
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				return -1
			}
			return v
		}
	}
	return 0
}

// families returns what our metrics are in a page: their type, and the names of their labels.
func families(metrics string) map[string]string {
	kinds, labels := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(metrics) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && strings.HasPrefix(f[2], "ratelimitd_") {
			kinds[f[2]] = f[3]
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); kinds[base] == "histogram" {
				name = base
			}
		}
		for _, label := range regexp.MustCompile(`[{,]([a-z]+)="`).FindAllStringSubmatch("{"+rest, -1) {
			if label[1] != "le" && !slices.Contains(labels[name], label[1]) {
				labels[name] = append(labels[name], label[1])
			}
		}
	}
	m := map[string]string{}
	for name, kind := range kinds {
		slices.Sort(labels[name])
		m[name] = kind + " " + strings.Join(labels[name], ", ")
	}
	return m
}

// C78e: total = within + over, after requests of several hits that straddle the limit.
func TestMetricsC78(t *testing.T) {
	t.Parallel()
	o, _ := options(t, "domain: shop\ndescriptors:\n  - key: api\n    rate_limit: {name: api, unit: hour, requests_per_unit: 10}\n")
	a := start(t, o)
	client := rlsv3.NewRateLimitServiceClient(dial(t, a))
	for range 2 { // within 7, then over 7
		req := request("api", "10.0.0.0/8")
		req.HitsAddend = 7
		if _, err := client.ShouldRateLimit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	_, metrics := get(t, a.Addr("admin"), "/metrics")
	for series, want := range map[string]float64{
		`ratelimitd_hits_total{domain="shop",limit="api",rule="api"}`:                        14,
		`ratelimitd_hits_within_total{domain="shop",limit="api",rule="api"}`:                 7,
		`ratelimitd_hits_over_total{domain="shop",limit="api",rule="api"}`:                   7,
		`ratelimitd_decisions_total{domain="shop",origin="store",rule="api",verdict="ok"}`:   1,
		`ratelimitd_decisions_total{domain="shop",origin="store",rule="api",verdict="over"}`: 1,
		`ratelimitd_decision_duration_seconds_count`:                                         2,
		`ratelimitd_config_last_load_ok`:                                                     1,
		`ratelimitd_config_version`:                                                          1,
		`ratelimitd_memstore_buckets`:                                                        1,
	} {
		if got := sample(metrics, series); got != want {
			t.Errorf("%s: got %v, want %v", series, got, want)
		}
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if sample(metrics, name) <= 0 {
			t.Errorf("%s is missing", name)
		}
	}
	if !regexp.MustCompile(`(?m)^ratelimitd_build_info\{goversion="go.*",revision="none",version="test"\} 1$`).MatchString(metrics) {
		t.Error("build info is missing")
	}
	if strings.Contains(metrics, "10.0.0.0") {
		t.Error("a request's value is in the metrics")
	}
}

// tlsMetrics returns /metrics of a process whose gRPC port has TLS.
func tlsMetrics(t *testing.T) string {
	t.Helper()
	pair := certtest.New(t).Issue(t, certtest.Leaf{})
	o, _ := options(t, rules)
	o.GRPCTLS = &servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	_, metrics := get(t, start(t, o).Addr("admin"), "/metrics")
	return metrics
}

// docs/telemetry.md lists exactly the metrics there are, with their types.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(ratelimitd_[a-z0-9_]+)(?:\\{([a-z, ]*)\\})?` \\| (counter|gauge|histogram) \\|").FindAllStringSubmatch(string(doc), -1) {
		labels := strings.Split(row[2], ", ")
		slices.Sort(labels)
		documented[row[1]] = row[3] + " " + strings.Join(labels, ", ")
	}

	const shadow = "\n  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}\n" +
		"blocklist: [{key: bot, value: x, reason: tests}]\n"
	redis := redistest.Start(t)
	shown := map[string]string{}
	for _, url := range []string{"", redis.URL()} {
		o, log := options(t, strings.TrimRight(rules, "\n")+shadow)
		o.RedisURL, o.RedisTimeout = app.Secret(url), patience
		if url == "" {
			maps.Copy(shown, families(tlsMetrics(t)))
			maps.Copy(shown, families(xdsMetrics(t)))
		}
		a := start(t, o)
		if url != "" {
			eventually(t, "the key secret is known", func() bool { return strings.Contains(log.String(), "key secret read from Redis") })
		}
		wantCodes(t, dial(t, a), "api", "x", ok)
		wantCodes(t, dial(t, a), "shadow", "x", ok) // its series come with the first
		wantCodes(t, dial(t, a), "bot", "x", over)
		if url != "" {
			redis.Stop() // there is more to say when it is away
			conn := dial(t, a)
			eventually(t, "the breaker opens", func() bool {
				for range 20 { // within a second, or it takes fewer for a bad one
					ask(t, conn, "api", "y")
				}
				_, metrics := get(t, a.Addr("admin"), "/metrics")
				return sample(metrics, `ratelimitd_breaker_state{shard="redis"}`) == 1
			})
		}
		_, metrics := get(t, a.Addr("admin"), "/metrics")
		maps.Copy(shown, families(metrics))
	}
	if diff := cmp.Diff(shown, documented); diff != "" {
		t.Errorf("docs/telemetry.md does not match /metrics (-metrics +documented):\n%s", diff)
	}
}

func TestAdminPages(t *testing.T) {
	t.Parallel()
	o, _ := options(t, rules)
	a := start(t, o)
	code, list := get(t, a.Addr("admin"), "/")
	var paths []string
	for line := range strings.Lines(list) {
		path, help, ok := strings.Cut(line, ": ")
		if !ok || strings.TrimSpace(help) == "" {
			t.Errorf("list: got line %q, want path: help", line)
		}
		paths = append(paths, path)
	}
	want := []string{"/config", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/trace", "/metrics", "/rlconfig"}
	if diff := cmp.Diff(want, paths); code != http.StatusOK || diff != "" {
		t.Errorf("list: status %d, (-want +got):\n%s", code, diff)
	}
	for path, contained := range map[string]string{
		"/rlconfig":                       "shop.api: unit=HOUR requests_per_unit=2",
		"/config":                         `"last_load_ok": true`,
		"/debug/pprof/":                   "goroutine",
		"/debug/pprof/profile?seconds=1":  "",
		"/debug/pprof/trace?seconds=0.01": "",
	} {
		if code, body := get(t, a.Addr("admin"), path); code != http.StatusOK || !strings.Contains(body, contained) {
			t.Errorf("%s: got status %d, body %q, want 200 with %q", path, code, body, contained)
		}
	}
	for _, path := range []string{"/debug/pprof/cmdline", "/nowhere", "/json", "/metrics/x"} {
		if code, _ := get(t, a.Addr("admin"), path); code != http.StatusNotFound {
			t.Errorf("%s: got status %d, want 404", path, code)
		}
	}
	resp, err := http.Post("http://"+a.Addr("admin").String()+"/metrics", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: got status %d, want 405", resp.StatusCode)
	}
}

// The text of what the last load said is on /config, and goes away with the mistake.
func TestConfigPageC46(t *testing.T) {
	t.Parallel()
	o, log := options(t, rules)
	a := start(t, o)
	state := func() (st struct {
		LastOK  bool   `json:"last_load_ok"`
		Error   string `json:"error"`
		Version int    `json:"version"`
		Hash    string `json:"hash"`
	}) {
		t.Helper()
		_, body := get(t, a.Addr("admin"), "/config")
		if err := json.Unmarshal([]byte(body), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	first := state()
	conn := dial(t, a)
	wantCodes(t, conn, "api", "x", ok, ok)

	writeFile(t, o.Rules, strings.Replace(rules, "unit: hour", "unit: fortnight", 1))
	a.Reload()
	eventually(t, "the version is refused", func() bool { return strings.Contains(log.String(), "the last good rules stay") })
	wantCodes(t, conn, "api", "x", over)
	bad := state()
	if bad.LastOK || bad.Version != first.Version || bad.Hash != first.Hash || !strings.Contains(bad.Error, o.Rules+":5:") {
		t.Errorf("/config of a bad version: got %+v, want the first version %+v and the place of the mistake", bad, first)
	}
	for _, said := range []string{`"problem":"` + o.Rules + ":5:", "the last good rules stay"} {
		if !strings.Contains(log.String(), said) {
			t.Errorf("the log does not say %s:\n%s", said, log)
		}
	}
	if code, _ := get(t, a.Addr("http"), "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz with a bad version: got status %d, want 200", code)
	}

	writeFile(t, o.Rules, rules)
	a.Reload()
	eventually(t, "/config is as it was, once the mistake is taken back", func() bool { return state() == first })
}
