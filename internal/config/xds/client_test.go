package xds

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/clienttls"
	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/rule"
	"github.com/ratelimitd/ratelimitd/internal/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something real; long, since a loaded machine is no failure.
const patience = 20 * time.Second

// eventually waits until something real has happened.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
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

// follower is a Live that follows a control plane until its test ends.
type follower struct {
	*config.Live
	t   *testing.T
	log logBuffer
}

func follow(t *testing.T, o Options, live config.Options) *follower {
	t.Helper()
	f := &follower{t: t}
	o.Logger = slog.New(slog.NewTextHandler(&f.log, nil))
	live.Logger = o.Logger
	if o.MinBackoff == 0 {
		o.MinBackoff, o.MaxBackoff = 10*time.Millisecond, 50*time.Millisecond
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	live.Rules = rule.Options{DefaultProfile: rule.Envoy, MaxFileBytes: c.MaxFileBytes()}
	if f.Live, err = config.New(live); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx, c); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", f.log.String())
		}
	})
	return f
}

// requests returns the number of the limit of domain d1, 0 if there is none.
func (f *follower) requests() uint32 {
	if f.Current() == nil || f.Current().Domain("d1") == nil {
		return 0
	}
	r := f.Current().Domain("d1").Match([]rule.Entry{{Key: "k", Value: "x"}})
	if r == nil || len(r.Limits) == 0 {
		return 0
	}
	return r.Limits[0].Requests
}

func (f *follower) becomes(n uint32) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("a limit of %d", n), func() bool { return f.requests() == n && f.Status().LastOK })
}

// d1 is a config with a limit of n.
func d1(n uint32) *conf { return xdstest.Limit("d1", "k", minute, n) }

// bad is a config that is refused, with the text that it earns.
var bad = &conf{Name: "d1", Domain: "d1", Descriptors: []*desc{{Key: "k", RateLimit: &limits{RequestsPerUnit: 1}}}}

const badMessage = "d1:7:13: descriptors[0].rate_limit.unit: invalid rate limit unit 'UNKNOWN'; want second, minute, hour, day, week, month or year"

// exchange is what matters of one request.
type exchange struct{ node, version, nonce, message string }

func exchanges(requests []*discoveryv3.DiscoveryRequest) []exchange {
	out := make([]exchange, len(requests))
	for i, r := range requests {
		out[i] = exchange{r.GetNode().GetId(), r.GetVersionInfo(), r.GetResponseNonce(), r.GetErrorDetail().GetMessage()}
	}
	return out
}

// Rules arrive, change, are refused with the text of a file's mistake while the last good ones stay, and get better.
func TestFollows(t *testing.T) {
	t.Parallel()
	plane := xdstest.Start(t, "envoy-ratelimit", nil)
	f := follow(t, Options{
		Server: plane.Addr, NodeID: "envoy-ratelimit",
		NodeMetadata: map[string]string{"zone": "a"}, Headers: map[string]string{"x-token": "secret"},
	}, config.Options{})
	eventually(t, "a request", func() bool { return len(plane.Requests()) == 1 })
	if f.Current() != nil {
		t.Error("there are rules before the first response")
	}
	plane.Set(t, "1", d1(1))
	f.becomes(1)
	plane.Set(t, "2", d1(2), xdstest.Limit("d2", "k", week, 1))
	f.becomes(2)
	plane.Set(t, "3", bad)
	eventually(t, "a refused version", func() bool { return f.Status().Failures == 1 })
	if st := f.Status(); f.requests() != 2 || st.Error != badMessage || st.OriginVersion != "2" || st.Origin != "xds "+plane.Addr {
		t.Errorf("after a bad version: limit %d, status %+v", f.requests(), st)
	}
	plane.Set(t, "4", d1(4))
	f.becomes(4)
	eventually(t, "the last answer", func() bool {
		r := plane.Requests()
		return r[len(r)-1].GetVersionInfo() == "4"
	})

	got := exchanges(plane.Requests())
	want := []exchange{
		{node: "envoy-ratelimit"},
		{node: "envoy-ratelimit", version: "1", nonce: "1"},
		{node: "envoy-ratelimit", version: "2", nonce: "2"},
		{node: "envoy-ratelimit", version: "2", nonce: "3", message: badMessage},
	}
	if len(got) < len(want)+1 {
		t.Fatalf("got requests %v", got)
	}
	if diff := cmp.Diff(want, got[:len(want)], cmp.AllowUnexported(exchange{})); diff != "" {
		t.Errorf("wrong requests (-want +got):\n%s", diff)
	}
	for i, r := range plane.Requests() {
		if r.GetTypeUrl() != typeURL || len(r.GetResourceNames()) != 0 || r.GetNode().GetMetadata().GetFields()["zone"].GetStringValue() != "a" {
			t.Errorf("request %d: got %v, want the type, no names, and the node's metadata", i, r)
		}
	}
	if got := plane.Headers()[0].Get("x-token"); len(got) != 1 || got[0] != "secret" {
		t.Errorf("header x-token: got %q", got)
	}
}

// A control plane that sends a refused version again, at every answer, is not answered at once, and counts once.
func TestRefusedAgain(t *testing.T) {
	t.Parallel()
	plane := xdstest.Start(t, DefaultNodeID, nil)
	f := follow(t, Options{Server: plane.Addr}, config.Options{})
	plane.Set(t, "1", d1(1))
	f.becomes(1)
	plane.Set(t, "2", bad)
	nacks := func() (n int) {
		for _, r := range plane.Requests() {
			if r.GetErrorDetail() != nil {
				n++
			}
		}
		return n
	}
	eventually(t, "a NACK", func() bool { return nacks() == 1 })
	first := time.Now()
	eventually(t, "another NACK", func() bool { return nacks() == 2 })
	if d := time.Since(first); d < nackPause/3 {
		t.Errorf("the second NACK came after %v, want about %v", d, nackPause)
	}
	if st := f.Status(); st.Failures != 1 || st.LastOK || f.requests() != 1 {
		t.Errorf("after two NACKs: limit %d, status %+v, want one failure", f.requests(), st)
	}
	plane.Set(t, "3", d1(3))
	f.becomes(3)
}

// A control plane that is away changes nothing; one that begins anew is asked for everything, whatever it calls it.
func TestControlPlaneGoneAndBack(t *testing.T) {
	t.Parallel()
	plane := xdstest.Start(t, DefaultNodeID, nil)
	f := follow(t, Options{Server: plane.Addr}, config.Options{})
	plane.Set(t, "3", d1(3))
	f.becomes(3)
	plane.Set(t, "7", d1(7))
	f.becomes(7)
	plane.Stop()
	eventually(t, "the log says that it is away", func() bool { return strings.Contains(f.log.String(), "no control plane, the rules stay") })
	if f.requests() != 7 || !f.Status().LastOK {
		t.Errorf("without control plane: limit %d, status %+v", f.requests(), f.Status())
	}

	// The same version, and another content.
	before := len(plane.Requests())
	plane.Restart(t)
	plane.Set(t, "7", d1(8))
	f.becomes(8)
	if got := exchanges(plane.Requests()[before : before+1]); got[0] != (exchange{node: DefaultNodeID}) {
		t.Errorf("the first request of a new stream: got %+v, want no version and no nonce", got[0])
	}
	// A lower version is as good as any.
	plane.Set(t, "1", d1(1))
	f.becomes(1)
	// What a stream refuses first, it refuses by the version accepted on an earlier one.
	plane.Restart(t)
	plane.Set(t, "2", bad)
	eventually(t, "a NACK", func() bool {
		r := plane.Requests()
		return r[len(r)-1].GetErrorDetail() != nil && r[len(r)-1].GetVersionInfo() == "1"
	})
}

// An empty response would let everything pass.
func TestEmptyResponse(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		t.Run(fmt.Sprintf("allowed %t", allow), func(t *testing.T) {
			t.Parallel()
			plane := xdstest.Start(t, DefaultNodeID, nil)
			f := follow(t, Options{Server: plane.Addr}, config.Options{AllowEmpty: allow})
			plane.Set(t, "1", d1(1))
			f.becomes(1)
			plane.Set(t, "2")
			if allow {
				f.becomes(0)
				if !strings.Contains(f.log.String(), "nothing is limited") {
					t.Error("the log does not say that nothing is limited")
				}
				return
			}
			eventually(t, "a refused version", func() bool { return f.Status().Failures == 1 })
			if f.requests() != 1 || !strings.Contains(f.Status().Error, "--allow-empty-rules") {
				t.Errorf("limit %d, status %+v, want 1 and the flag in the error", f.requests(), f.Status())
			}
		})
	}
}

// Both ends show a certificate; the control plane's is checked against one authority and its name.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := certtest.New(t), certtest.New(t)
	server := authority.Issue(t, certtest.Leaf{DNSNames: []string{"envoy-gateway"}})
	pair, err := tls.LoadX509KeyPair(server.CertFile, server.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	plane := xdstest.Start(t, DefaultNodeID, &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool, MinVersion: tls.VersionTLS13,
	})
	plane.Set(t, "1", d1(1))
	client := authority.Issue(t, certtest.Leaf{})
	with := func(change func(*clienttls.Files)) *clienttls.Files {
		o := &clienttls.Files{CertFile: client.CertFile, KeyFile: client.KeyFile, CAFile: authority.File}
		change(o)
		return o
	}
	for name, o := range map[string]*clienttls.Files{
		"by address":   with(func(*clienttls.Files) {}),
		"another name": with(func(o *clienttls.Files) { o.ServerName = "envoy-gateway" }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := follow(t, Options{Server: plane.Addr, TLS: o}, config.Options{})
			f.becomes(1)
		})
	}
	foreign := stranger.Issue(t, certtest.Leaf{})
	for name, test := range map[string]struct {
		o    *clienttls.Files
		says string
	}{
		"unknown authority":     {with(func(o *clienttls.Files) { o.CAFile = stranger.File }), "certificate signed by unknown authority"},
		"wrong name":            {with(func(o *clienttls.Files) { o.ServerName = "other" }), "not other"},
		"foreign certificate":   {with(func(o *clienttls.Files) { o.CertFile, o.KeyFile = foreign.CertFile, foreign.KeyFile }), "remote error: tls"},
		"no certificate":        {with(func(o *clienttls.Files) { o.CertFile, o.KeyFile = "", "" }), "certificate required"},
		"plaintext to TLS port": {nil, "no control plane"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := follow(t, Options{Server: plane.Addr, TLS: test.o}, config.Options{})
			eventually(t, "the log says why", func() bool { return strings.Contains(f.log.String(), test.says) })
			if f.Current() != nil {
				t.Error("there are rules of a control plane that is not trusted")
			}
		})
	}
	// Renewed certificates are shown to the next connection.
	t.Run("renewed", func(t *testing.T) {
		t.Parallel()
		late := stranger.Issue(t, certtest.Leaf{})
		f := follow(t, Options{Server: plane.Addr, TLS: with(func(o *clienttls.Files) { o.CertFile, o.KeyFile = late.CertFile, late.KeyFile })}, config.Options{})
		eventually(t, "the foreign certificate is refused", func() bool { return strings.Contains(f.log.String(), "remote error: tls") })
		authority.IssueTo(t, late, certtest.Leaf{})
		f.becomes(1)
	})
}

// A response beyond the limit of a message is not taken, and the limit can be raised.
func TestMessageSize(t *testing.T) {
	t.Parallel()
	plane := xdstest.Start(t, DefaultNodeID, nil)
	large := d1(1)
	for i := range 2000 {
		large.Descriptors = append(large.Descriptors, &desc{Key: fmt.Sprint(i), Value: strings.Repeat("x", 1000), RateLimit: &limits{Unit: minute, RequestsPerUnit: 1}})
	}
	plane.Set(t, "1", large)
	small := follow(t, Options{Server: plane.Addr, MaxMessageBytes: 1 << 20}, config.Options{})
	eventually(t, "the log says that it is too large", func() bool { return strings.Contains(small.log.String(), "larger than max") })
	if small.Current() != nil {
		t.Error("there are rules of a response that is too large")
	}
	follow(t, Options{Server: plane.Addr}, config.Options{}).becomes(1)
}

func TestNewRefusesBadOptions(t *testing.T) {
	t.Parallel()
	spoiled := t.TempDir() + "/ca.crt"
	if err := os.WriteFile(spoiled, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		o    Options
		want string
	}{
		{"no server", Options{}, "--xds-server: want host:port"},
		{"negative size", Options{Server: "x:1", MaxMessageBytes: -1}, "--xds-max-message-bytes: -1"},
		{"backoff", Options{Server: "x:1", MinBackoff: time.Minute, MaxBackoff: time.Second}, "xds backoff of 1m0s to 1s"},
		{"key alone", Options{Server: "x:1", TLS: &clienttls.Files{KeyFile: "k"}}, "want both or none"},
		{"missing certificate", Options{Server: "x:1", TLS: &clienttls.Files{CertFile: "/nowhere", KeyFile: "/nowhere"}}, `--xds-tls-cert "/nowhere"`},
		{"missing authority", Options{Server: "x:1", TLS: &clienttls.Files{CAFile: "/nowhere"}}, "--xds-tls-ca: open /nowhere"},
		{"spoiled authority", Options{Server: "x:1", TLS: &clienttls.Files{CAFile: spoiled}}, "no certificate in PEM"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := New(test.o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	c, err := New(Options{Server: "x:1", MaxBackoff: 10 * time.Millisecond})
	if err != nil || c.o.MinBackoff != 10*time.Millisecond {
		t.Errorf("a short longest backoff: got error %v, shortest %v", err, c.o.MinBackoff)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	if got := cut("short"); got != "short" {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)
	got := cut(long)
	if len(got) > maxMessage+100 || !strings.HasSuffix(got, "x\n… and 838 lines more") {
		t.Errorf("got %d bytes that end in %q", len(got), got[len(got)-40:])
	}
}
