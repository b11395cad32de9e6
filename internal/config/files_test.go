package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

const (
	good = "domain: shop\ndescriptors:\n  - key: api\n    rate_limit: {unit: hour, requests_per_unit: %d}\n"
	bad  = "domain: shop\ndescriptors:\n  - key: api\n    rate_limit: {unit: fortnight, requests_per_unit: -1}\n"
)

// fixture is a set of rules in one file, its log and its metrics.
type fixture struct {
	*Files
	t    *testing.T
	file string
	log  bytes.Buffer
	reg  *prometheus.Registry
	now  time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		t: t, file: filepath.Join(t.TempDir(), "rules.yaml"),
		reg: prometheus.NewRegistry(), now: time.Unix(1_800_000_000, 0),
	}
	write(t, f.file, fmt.Sprintf(good, 1))
	var err error
	f.Files, err = NewFiles(filepath.Dir(f.file), Options{
		Registerer: f.reg, Logger: slog.New(slog.NewTextHandler(&f.log, nil)), Now: func() time.Time { return f.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// requests returns the number of the current rules' only limit.
func (f *fixture) requests() uint32 {
	f.t.Helper()
	r := f.Current().Domain("shop").Match([]rule.Entry{{Key: "api", Value: "x"}})
	if r == nil {
		f.t.Fatal("no rule for shop | [api=x]")
	}
	return r.Limits[0].Requests
}

func (f *fixture) want(requests uint32, version int, ok bool) {
	f.t.Helper()
	if got := f.requests(); got != requests {
		f.t.Errorf("requests per unit: got %d, want %d", got, requests)
	}
	st := f.Status()
	if st.LastOK != ok || st.Version != int64(version) {
		f.t.Errorf("status: got last load ok %t, version %d, want %t, %d", st.LastOK, st.Version, ok, version)
	}
	if (st.Error == "") != ok {
		f.t.Errorf("status: got error %q with last load ok %t", st.Error, ok)
	}
	if st.Hash != f.Current().Hash() {
		f.t.Errorf("status: got hash %q, want that of the current rules, %q", st.Hash, f.Current().Hash())
	}
}

// wantMetrics scrapes the registry, and compares what follows "ratelimitd_config_".
func (f *fixture) wantMetrics(want map[string]string) {
	f.t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(f.reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	got := map[string]string{}
	for line := range strings.Lines(w.Body.String()) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ratelimitd_config_"); ok {
			name, value, _ := strings.Cut(rest, " ")
			got[name] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("wrong metrics (-want +got):\n%s", diff)
	}
}

// metrics are what a fixture shows while its first rules are current.
func (f *fixture) metrics(ok, success, errors string) map[string]string {
	return map[string]string{
		"last_load_ok":                   ok,
		"last_success_timestamp_seconds": success,
		"version":                        "1",
		"errors_total":                   errors,
		fmt.Sprintf("info{hash=%q}", f.Current().Hash()): "1",
	}
}

// C46: a bad new file keeps the last good rules, loudly.
func TestReloadC46(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.want(1, 1, true)
	f.wantMetrics(f.metrics("1", "1.8e+09", "0"))

	f.now = f.now.Add(time.Minute)
	write(t, f.file, bad)
	err := f.Reload()
	var problems rule.Errors
	if !errors.As(err, &problems) || len(problems) != 2 {
		t.Fatalf("reload of two mistakes: got %v", err)
	}
	f.want(1, 1, false)
	f.wantMetrics(f.metrics("0", "1.8e+09", "1"))
	for _, p := range problems {
		place := fmt.Sprintf("%s:%d:%d", f.file, p.Line, p.Col)
		if !strings.Contains(err.Error(), place) {
			t.Errorf("the error does not name %s: %v", place, err)
		}
		if !strings.Contains(f.Status().Error, place) {
			t.Errorf("the status does not name %s: %s", place, f.Status().Error)
		}
	}

	// The same mistake again is said again.
	if f.Reload() == nil {
		t.Error("second reload of a bad file: got no error")
	}
	f.wantMetrics(f.metrics("0", "1.8e+09", "2"))

	// Taking it back is no new version.
	current := f.Current()
	write(t, f.file, fmt.Sprintf(good, 1))
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.want(1, 1, true)
	f.wantMetrics(f.metrics("1", "1.80000006e+09", "2"))
	if f.Current() != current {
		t.Error("unchanged bytes were compiled again")
	}

	write(t, f.file, fmt.Sprintf(good, 2))
	if err := f.Reload(); err != nil {
		t.Error(err)
	}
	f.want(2, 2, true)
}

func TestReloadKeepsRulesThatAreGone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		harm func(t *testing.T, f *fixture)
	}{
		{"file removed", func(t *testing.T, f *fixture) {
			if err := os.Remove(f.file); err != nil {
				t.Fatal(err)
			}
		}},
		{"directory removed", func(t *testing.T, f *fixture) {
			if err := os.RemoveAll(filepath.Dir(f.file)); err != nil {
				t.Fatal(err)
			}
		}},
		{"file emptied", func(t *testing.T, f *fixture) { write(t, f.file, "") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			test.harm(t, f)
			if f.Reload() == nil {
				t.Error("reload: got no error")
			}
			f.want(1, 1, false)
		})
	}
}

func TestFirstLoadMustSucceed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, bad)
	_, err := NewFiles(path, Options{Logger: slog.New(slog.DiscardHandler)})
	var problems rule.Errors
	if !errors.As(err, &problems) || len(problems) != 2 {
		t.Errorf("got %v, want both mistakes", err)
	}
	if _, err := NewFiles(filepath.Join(t.TempDir(), "missing"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing path: got %v, want %v", err, os.ErrNotExist)
	}
}

// Readers see one version or another, whole, while others load; run with -race.
func TestReloadWhileRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if n := f.requests(); n < 1 || n > 50 {
					t.Errorf("requests per unit: got %d, want 1…50", n)
					return
				}
				f.Status()
			}
		})
	}
	for i := 2; i <= 50; i++ {
		write(t, f.file, fmt.Sprintf(good, i))
		if err := f.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
	f.want(50, 50, true)
}
