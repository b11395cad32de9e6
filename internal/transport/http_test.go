package transport

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// serveHTTP returns the answer of o's handler to a request.
func serveHTTP(t *testing.T, o Options, method, path, body string) *http.Response {
	t.Helper()
	if o.Decider == nil {
		o.Decider = deciderFunc(allow)
	}
	w := httptest.NewRecorder()
	HTTP(o).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestJSON(t *testing.T) {
	t.Parallel()
	over := engine.Verdict{Over: true, Statuses: []engine.Status{{
		Over: true, HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1, Quota: 5, Window: time.Minute,
		Reset: 915 * time.Second, RetryAfter: 915 * time.Second,
	}}}
	const request = `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`
	deny, noRules := always(over), deciderFunc(func(context.Context, *engine.Request, *engine.Verdict) error { return engine.ErrNoRules })
	tests := map[string]struct {
		decider Decider
		method  string
		body    string
		code    int
		want    string
	}{
		"allowed":         {nil, "POST", request, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		"denied":          {deny, "POST", request, 429, `{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"requestsPerUnit":5,"unit":"MINUTE","name":"login"},"durationUntilReset":"915s"}]}`},
		"by GET":          {nil, "GET", request, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		"by any method":   {nil, "PURGE", request, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		"in snake case":   {nil, "POST", `{"domain":"d","hits_addend":1,"descriptors":[{"hits_addend":"7"}]}`, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		"in camel case":   {nil, "POST", `{"domain":"d","hitsAddend":1,"descriptors":[{"hitsAddend":7,"isNegativeHits":true}]}`, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
		"no body":         {nil, "GET", "", 400, ""},
		"no JSON":         {nil, "POST", "}", 400, ""},
		"unknown field":   {nil, "POST", `{"domian":"d"}`, 400, ""},
		"empty domain":    {nil, "POST", `{}`, 400, ""},
		"no descriptors":  {nil, "POST", `{"domain":"d"}`, 400, ""},
		"no rules loaded": {noRules, "POST", request, 400, ""},
		"more than 1 MiB": {nil, "POST", `{"domain":"` + strings.Repeat("d", maxBody) + `"}`, 413, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := serveHTTP(t, Options{Decider: tt.decider, Headers: Headers{IETF: true}, Problem: true}, tt.method, "/json", tt.body)
			body := bodyOf(t, r)
			if r.StatusCode != tt.code {
				t.Errorf("got %d %q, want %d", r.StatusCode, body, tt.code)
			}
			if tt.want == "" {
				if want := http.StatusText(tt.code) + "\n"; body != want {
					t.Errorf("body: got %q, want %q", body, want)
				}
				if ct := r.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/plain") {
					t.Errorf("content type: got %q, want text/plain", ct)
				}
				if r.Header.Get("Ratelimitd-Error") == "" {
					t.Error("no reason is given")
				}
				return
			}
			if got := r.Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("content type: got %q, want application/json", got)
			}
			var got, want rlsv3.RateLimitResponse
			if err := protojson.Unmarshal([]byte(body), &got); err != nil {
				t.Fatalf("body %q: %v", body, err)
			}
			if err := protojson.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&want, &got, protocmp.Transform(), protocmp.IgnoreFields(&got, "response_headers_to_add", "raw_body")); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJSONIsCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for _, body := range []string{`{"domain":"d","descriptors":[{}]}`, "}", "{}"} {
		serveHTTP(t, Options{Registerer: reg}, "POST", "/json", body)
	}
	for code, want := range map[string]float64{"OK": 1, "InvalidArgument": 2} {
		if got := metric(t, reg, "ratelimitd_transport_requests_total", "http", code); got != want {
			t.Errorf("requests answered %s: counted %v, want %v", code, got, want)
		}
	}
}

// TestJSONShowsHeaders holds that curl -i shows what a proxy would send to its client.
func TestJSONShowsHeaders(t *testing.T) {
	t.Parallel()
	v := engine.Verdict{Over: true, Statuses: []engine.Status{{
		Over: true, HasLimit: true, Name: "login", Requests: 5, Unit: bucket.Minute, Multiplier: 1, Quota: 5, Window: time.Minute, RetryAfter: time.Second,
	}}}
	r := serveHTTP(t, Options{Decider: always(v), Headers: Headers{IETF: true}, Problem: true}, "POST", "/json", `{"domain":"d","descriptors":[{}]}`)
	for name, want := range map[string]string{
		"RateLimit-Policy": `"login";q=5;w=60`, "RateLimit": `"login";r=0;t=1`, "Retry-After": "1", "Content-Type": "application/json",
	} {
		if got := r.Header.Values(name); !cmp.Equal(got, []string{want}) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(bodyOf(t, r)), &body); err != nil {
		t.Fatal(err)
	}
	if _, ok := body["responseHeadersToAdd"]; !ok {
		t.Errorf("body: got %v, want the headers in it too", body)
	}
}

func TestJSONPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	var log syncBuilder
	r := serveHTTP(t, Options{
		Logger:  slog.New(slog.NewJSONHandler(&log, nil)),
		Decider: deciderFunc(func(context.Context, *engine.Request, *engine.Verdict) error { panic("a bug") }),
	}, "POST", "/json", `{"domain":"d"}`)
	if got := bodyOf(t, r); r.StatusCode != 500 || got != "Internal Server Error\n" {
		t.Errorf("got %d %q, want 500", r.StatusCode, got)
	}
	if !strings.Contains(log.String(), "a bug") {
		t.Errorf("log: got %q, want the panic", log.String())
	}
}

// snapshots is an engine.Snapshots of one snapshot.
type snapshots struct{ s *rule.Snapshot }

func (s snapshots) Current() *rule.Snapshot { return s.s }

// load compiles rules in profile native.
func load(t *testing.T, text string) *rule.Snapshot {
	t.Helper()
	s, _, err := rule.Load([]rule.File{{Name: "rules.yaml", Data: []byte(text)}}, rule.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHealthPages(t *testing.T) {
	t.Parallel()
	no := func() bool { return false }
	rules := load(t, "domain: shop\n")
	tests := map[string]struct {
		o    Options
		path string
		code int
		body string
	}{
		"healthy":           {Options{}, "/healthcheck", 200, "OK"},
		"unhealthy":         {Options{Serving: no}, "/healthcheck", 500, ""},
		"ready":             {Options{}, "/readyz", 200, "ok"},
		"not ready":         {Options{Serving: no}, "/readyz", 503, "not serving"},
		"verbose":           {Options{Snapshots: snapshots{rules}}, "/readyz?verbose", 200, "ok\nrules: 1 domains, version " + rules.Hash() + "\n"},
		"verbose, no rules": {Options{Serving: no, Snapshots: snapshots{}}, "/readyz?verbose", 503, "not serving\nrules: none loaded yet\n"},
		"anything else":     {Options{}, "/", 404, "404 page not found\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, method := range []string{"GET", "POST"} {
				r := serveHTTP(t, tt.o, method, tt.path, "")
				if got := bodyOf(t, r); r.StatusCode != tt.code || got != tt.body {
					t.Errorf("%s: got %d %q, want %d %q", method, r.StatusCode, got, tt.code, tt.body)
				}
			}
		})
	}
}

func TestRLConfig(t *testing.T) {
	t.Parallel()
	rules := load(t, `
domain: shop
descriptors:
  - key: zone
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: api
    value: v1
    shadow_mode: true
    rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 3}
    descriptors:
      - key: user
        quota_mode: true
        limits:
          - {name: burst, unit: second, requests_per_unit: 2}
          - {name: daily, unit: day, requests_per_unit: 100}
  - key: banned
  - key: ops
    rate_limit: {unlimited: true}
`)
	want := `shop.zone: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: false
shop.api_v1: unit=MINUTE requests_per_unit=3, shadow_mode: true, quota_mode: false, unit_multiplier: 5
shop.api_v1.user: unit=SECOND requests_per_unit=2, shadow_mode: false, quota_mode: true, name: burst
shop.api_v1.user: unit=DAY requests_per_unit=100, shadow_mode: false, quota_mode: true, name: daily
shop.ops: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
`
	for text, s := range map[string]*rule.Snapshot{want: rules, "": nil} {
		w := httptest.NewRecorder()
		RLConfig(snapshots{s}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/rlconfig", nil))
		if diff := cmp.Diff(text, w.Body.String()); diff != "" {
			t.Errorf("rlconfig (-want +got):\n%s", diff)
		}
	}
}

// TestSlowHTTPClientsAreClosed holds that clients that never finish their headers are closed in time and keep nobody out.
func TestSlowHTTPClientsAreClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewHTTPServer(HTTP(Options{Decider: deciderFunc(allow)}), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	var slow []net.Conn
	for range 100 {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		if _, err := io.WriteString(nc, "GET /healthcheck HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, nc)
	}
	req, err := http.NewRequestWithContext(testContext(t), "GET", "http://"+l.Addr().String()+"/healthcheck", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := bodyOf(t, r); got != "OK" {
		t.Errorf("got %q, want OK", got)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	for _, nc := range slow {
		if err := nc.SetReadDeadline(time.Now().Add(5 * s.ReadHeaderTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, nc); isTimeout(err) {
			t.Fatalf("still open after %v", 5*s.ReadHeaderTimeout)
		}
	}
}
