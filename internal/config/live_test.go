package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	good = "domain: shop\ndescriptors:\n  - key: api\n    rate_limit: {unit: hour, requests_per_unit: %d}\n"
	bad  = "domain: shop\ndescriptors:\n  - key: api\n    rate_limit: {unit: fortnight, requests_per_unit: -1}\n"
)

// update is a version of one file.
func update(text string) Update {
	return Update{Origin: "test", Files: []rule.File{{Name: "rules.yaml", Data: []byte(text)}}}
}

// version is a good one, with a limit of n.
func version(n int) Update {
	u := update(fmt.Sprintf(good, n))
	u.Version = fmt.Sprint("v", n)
	return u
}

// logBuffer keeps log lines that several goroutines write.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fixture is a Live with its log, its metrics and the changes it told of.
type fixture struct {
	*Live
	t   *testing.T
	log logBuffer
	reg *prometheus.Registry
	now time.Time

	mu      sync.Mutex
	changes []Change
}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	f := &fixture{t: t, reg: prometheus.NewRegistry(), now: time.Unix(1_800_000_000, 0)}
	o.Registerer, o.Logger, o.Now = f.reg, slog.New(slog.NewTextHandler(&f.log, nil)), func() time.Time { return f.now }
	o.Changed = func(c Change) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changes = append(f.changes, c)
	}
	var err error
	if f.Live, err = New(o); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) apply(u Update) {
	f.t.Helper()
	if err := f.Apply(u); err != nil {
		f.t.Fatal(err)
	}
}

// requests returns the number of a snapshot's only limit, 0 if there is none.
func requests(s *rule.Snapshot) uint32 {
	if s == nil || s.Domain("shop") == nil {
		return 0
	}
	r := s.Domain("shop").Match([]rule.Entry{{Key: "api", Value: "x"}})
	if r == nil || len(r.Limits) == 0 {
		return 0
	}
	return r.Limits[0].Requests
}

func (f *fixture) want(limit uint32, version int64, ok bool) {
	f.t.Helper()
	if got := requests(f.Current()); got != limit {
		f.t.Errorf("requests per unit: got %d, want %d", got, limit)
	}
	st := f.Status()
	if st.LastOK != ok || st.Version != version {
		f.t.Errorf("status: got last load ok %t, version %d, want %t, %d", st.LastOK, st.Version, ok, version)
	}
	if (st.Error == "") != ok {
		f.t.Errorf("status: got error %q with last load ok %t", st.Error, ok)
	}
	if st.Hash != hashOf(f.Current()) {
		f.t.Errorf("status: got hash %q, want that of the current rules, %q", st.Hash, hashOf(f.Current()))
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
		"restored":                       "0",
		"domains":                        "1",
		"limits":                         "1",
		fmt.Sprintf("info{hash=%q}", f.Current().Hash()): "1",
	}
}

// C46: a bad new version keeps the last good rules, loudly.
func TestApplyC46(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	if f.Current() != nil {
		t.Error("there are rules before the first version")
	}
	f.wantMetrics(map[string]string{
		"last_load_ok": "0", "version": "0", "errors_total": "0", "restored": "0", "domains": "0", "limits": "0",
	})
	f.apply(version(1))
	f.want(1, 1, true)
	f.wantMetrics(f.metrics("1", "1.8e+09", "0"))

	f.now = f.now.Add(time.Minute)
	err := f.Apply(update(bad))
	var problems rule.Errors
	if !errors.As(err, &problems) || len(problems) != 2 {
		t.Fatalf("two mistakes: got %v", err)
	}
	f.want(1, 1, false)
	f.wantMetrics(f.metrics("0", "1.8e+09", "1"))
	for _, p := range problems {
		place := fmt.Sprintf("rules.yaml:%d:%d: ", p.Line, p.Col)
		if !strings.Contains(err.Error(), place) {
			t.Errorf("the error does not name %s: %v", place, err)
		}
		if !strings.Contains(f.Status().Error, place) {
			t.Errorf("the status does not name %s: %s", place, f.Status().Error)
		}
	}

	// The same mistake again is said again.
	if f.Apply(update(bad)) == nil {
		t.Error("a bad version for the second time: got no error")
	}
	f.wantMetrics(f.metrics("0", "1.8e+09", "2"))

	// Taking it back is no new version.
	current := f.Current()
	f.apply(version(1))
	f.want(1, 1, true)
	f.wantMetrics(f.metrics("1", "1.80000006e+09", "2"))
	if f.Current() != current {
		t.Error("the current version was replaced by itself")
	}

	f.apply(version(2))
	f.want(2, 2, true)
}

// C43–C45: what would silently remove, zero or turn around limits is refused, in both profiles, and changes nothing.
func TestApplyRefusesSilentHarm(t *testing.T) {
	t.Parallel()
	const head = "domain: shop\ndescriptors:\n  - key: api\n    rate_limit: "
	tests := []struct{ name, text, want string }{
		{"C43 missing requests_per_unit", head + "{unit: hour}\n", "rules.yaml:4:17: descriptors[0].rate_limit.requests_per_unit"},
		{"C44 descriptors twice", fmt.Sprintf(good, 5) + "descriptors: []\n", "rules.yaml:5:1: descriptors: key 'descriptors' is given twice"},
		{"C44 second document", fmt.Sprintf(good, 5) + "---\ndomain: other\n", "rules.yaml:6:1: a second YAML document"},
		{"C45 typing mistake", head + "{unit: hour, requests_per_unti: 5}\n", "unknown key 'requests_per_unti'"},
		{"C45 negative", head + "{unit: hour, requests_per_unit: -1}\n", "rules.yaml:4:49: descriptors[0].rate_limit.requests_per_unit"},
		{"C45 fraction", head + "{unit: hour, requests_per_unit: 2.5}\n", "rules.yaml:4:49: descriptors[0].rate_limit.requests_per_unit"},
		{"C45 unit", head + "{unit: fortnight, requests_per_unit: 5}\n", "rules.yaml:4:24: descriptors[0].rate_limit.unit"},
		{"cut after the first line", "domain: shop\n", "there is no rule in it"},
		{"cut to nothing", "", "rules.yaml:1:1: config file cannot have empty domain"},
		{"cut in a word", fmt.Sprintf(good, 5)[:60], "rules.yaml:5:1: error loading config file"},
	}
	for _, profile := range []rule.Profile{rule.Native, rule.Envoy} {
		for _, test := range tests {
			t.Run(profile.String()+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				f := newFixture(t, Options{Rules: rule.Options{DefaultProfile: profile}})
				f.apply(version(1))
				if err := f.Apply(update(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want an error with %q", err, test.want)
				}
				f.want(1, 1, false)
			})
		}
	}
}

func TestEmptyNeedsPermission(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]Update{"no files": {Origin: "test"}, "no rules": update("domain: shop\n")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, Options{})
			f.apply(version(1))
			if err := f.Apply(u); !errors.Is(err, ErrEmpty) {
				t.Errorf("got %v, want %v", err, ErrEmpty)
			}
			f.want(1, 1, false)

			f = newFixture(t, Options{AllowEmpty: true})
			f.apply(version(1))
			f.apply(u)
			f.want(0, 2, true)
			if !strings.Contains(f.log.String(), "the rules are empty: nothing is limited") {
				t.Errorf("the log does not say that nothing is limited:\n%s", f.log.String())
			}
		})
	}
}

// Everybody who has to know is told: of what became current and of what was refused, in order, and once.
func TestTells(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	var done []error
	apply := func(u Update) {
		u.Done = func(err error) { done = append(done, err) }
		if err := f.Apply(u); !errors.Is(err, done[len(done)-1]) {
			t.Errorf("Done was told %v, Apply returned %v", done[len(done)-1], err)
		}
	}
	apply(version(1))
	one := f.Current().Hash()
	apply(version(1)) // no change
	gone := Update{Origin: "test", Version: "v2", Err: fs.ErrNotExist}
	apply(gone)
	apply(version(3))
	want := []Change{
		{Origin: "test", Version: "v1", After: one},
		{Origin: "test", Version: "v2", Before: one, Err: fs.ErrNotExist},
		{Origin: "test", Version: "v3", Before: one, After: f.Current().Hash()},
	}
	if diff := cmp.Diff(want, f.changes, cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) })); diff != "" {
		t.Errorf("wrong changes (-want +got):\n%s", diff)
	}
	if len(done) != 4 || done[0] != nil || done[1] != nil || !errors.Is(done[2], fs.ErrNotExist) || done[3] != nil {
		t.Errorf("Done was told %v", done)
	}
}

// sourceFunc is a Source.
type sourceFunc func(ctx context.Context, deliver func(Update)) error

func (f sourceFunc) Run(ctx context.Context, deliver func(Update)) error { return f(ctx, deliver) }

func TestRunLogsWhatIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	ended := errors.New("no more")
	err := f.Run(t.Context(), sourceFunc(func(_ context.Context, deliver func(Update)) error {
		deliver(update(bad))
		if !strings.Contains(f.log.String(), "there are no rules yet") {
			t.Errorf("the log does not say that there are no rules:\n%s", f.log.String())
		}
		select {
		case <-f.Ready():
			t.Error("ready without rules")
		default:
		}
		deliver(version(1))
		<-f.Ready()
		deliver(update(bad))
		deliver(version(2))
		return ended
	}))
	if !errors.Is(err, ended) {
		t.Errorf("got %v, want the source's error", err)
	}
	f.want(2, 2, true)
	for _, want := range []string{"the last good rules stay", "rules.yaml:4:24", "rules.yaml:4:54"} {
		if !strings.Contains(f.log.String(), want) {
			t.Errorf("the log does not have %q:\n%s", want, f.log.String())
		}
	}
}

// Readers see one version or another, whole, while others become current; run with -race.
func TestApplyWhileRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.apply(version(1))
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
				if n := requests(f.Current()); n < 1 || n > 50 {
					t.Errorf("requests per unit: got %d, want 1…50", n)
					return
				}
				f.Status()
			}
		})
	}
	for i := 2; i <= 50; i++ {
		f.apply(version(i))
	}
	close(stop)
	readers.Wait()
	f.want(50, 50, true)
}
