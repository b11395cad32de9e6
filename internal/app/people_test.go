package app_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/redistest"
	"github.com/ratelimitd/ratelimitd/internal/servertls"
)

// adminOf returns a client of a's admin service: of JSON over HTTP, or of gRPC.
func adminOf(t *testing.T, a *app.App, o ...connect.ClientOption) v1connect.AdminServiceClient {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return v1connect.NewAdminServiceClient(&http.Client{Transport: tr}, "http://"+a.Addr("admin").String(), o...)
}

func raise(requests uint32) *v1.SetOverrideRequest {
	return &v1.SetOverrideRequest{
		Override: &v1.Override{Rule: "shop.api", Action: v1.Override_ACTION_LIMIT, Requests: requests, Author: "ann", Reason: "ticket 7"},
		Ttl:      durationpb.New(time.Hour),
	}
}

// windowRules limits api to 2 in a year that begins anew, so that a larger limit shows at once.
const windowRules = `
domain: shop
descriptors:
  - key: api
    rate_limit: {name: api, unit: year, requests_per_unit: 2, algorithm: fixed_window}
`

// A limit changed on one node holds on the other: within a second if it is told, by looking if it is not. What was spent
// stays spent, and what was denied a moment ago is not denied any more.
func TestOverrideOnEveryNode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		user      string
		reconcile time.Duration
		within    time.Duration
	}{
		"told":                 {"all", 0, time.Second},
		"without publications": {"deaf", 500 * time.Millisecond, time.Second + 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			for _, user := range [][]any{
				{"acl", "setuser", "all", "on", ">secret", "~*", "&*", "+@all"},
				{"acl", "setuser", "deaf", "on", ">secret", "~*", "resetchannels", "+@all"},
			} {
				if err := server.Client().Do(t.Context(), user...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			var nodes []*app.App
			for range 2 {
				o, log := options(t, windowRules)
				o.RedisURL = app.Secret("redis://" + tt.user + ":secret@" + server.Addr)
				o.RedisTimeout, o.Reconcile = 5*time.Second, tt.reconcile
				nodes = append(nodes, start(t, o))
				eventually(t, "the key secret is known", func() bool { return strings.Contains(log.String(), "key secret read from Redis") })
			}
			here, there := adminOf(t, nodes[0], connect.WithGRPC()), dial(t, nodes[1])
			eventually(t, "the second node reports", func() bool {
				list, err := here.ListNodes(t.Context(), &v1.ListNodesRequest{})
				return err == nil && len(list.GetNodes()) >= 1
			})
			wantCodes(t, there, "api", "x", ok, ok, over)
			begin := time.Now()
			if _, err := here.SetOverride(t.Context(), raise(3)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the second node admits one more", func() bool { return ask(t, there, "api", "x") == ok })
			if took := time.Since(begin); took > tt.within {
				t.Errorf("the other node had it after %v, want within %v", took, tt.within)
			}
			// Two were spent before, and one since; so the raised limit is spent too.
			wantCodes(t, there, "api", "x", over)
		})
	}
}

// Over TLS, who shows a certificate is a viewer, or an editor if it has the name; who shows none has no answer.
func TestAdminCertificates(t *testing.T) {
	t.Parallel()
	ours := certtest.New(t)
	pair := ours.Issue(t, certtest.Leaf{})
	o, _ := options(t, windowRules)
	o.StateDir, o.AdminAddr, o.AdminEditors = t.TempDir(), "0.0.0.0:0", []string{"ann.test"}
	o.AdminTLS = &servertls.Options{CertFile: pair.CertFile, KeyFile: pair.KeyFile, ClientCAFile: ours.File}
	a := start(t, o)
	_, port, err := net.SplitHostPort(a.Addr("admin").String())
	if err != nil {
		t.Fatal(err)
	}
	client := func(leaf *certtest.Leaf) v1connect.AdminServiceClient {
		c := &tls.Config{RootCAs: ours.Pool}
		if leaf != nil {
			files := ours.Issue(t, *leaf)
			shown, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{shown}
		}
		tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
		t.Cleanup(tr.CloseIdleConnections)
		return v1connect.NewAdminServiceClient(&http.Client{Transport: tr}, "https://127.0.0.1:"+port, connect.WithGRPC())
	}
	ctx := t.Context()
	if _, err := client(&certtest.Leaf{DNSNames: []string{"ann.test"}}).SetOverride(ctx, raise(5)); err != nil {
		t.Errorf("editor: %v", err)
	}
	viewer := client(&certtest.Leaf{DNSNames: []string{"bob.test"}})
	if _, err := viewer.SetOverride(ctx, raise(5)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("viewer changes: got %v, want %v", err, connect.CodePermissionDenied)
	}
	list, err := viewer.ListAuditEntries(ctx, &v1.ListAuditEntriesRequest{})
	if n := len(list.GetEntries()); err != nil || n == 0 || !strings.HasPrefix(list.GetEntries()[n-1].GetWho(), "ann (by certificate of ann.test from ") {
		t.Errorf("viewer looks: got %v, %v", list, err)
	}
	if _, err := client(nil).ListOverrides(ctx, &v1.ListOverridesRequest{}); err == nil {
		t.Error("no certificate: got an answer")
	}
}

// The service answers JSON by POST, and by GET what has no side effects.
func TestAdminJSON(t *testing.T) {
	t.Parallel()
	o, _ := options(t, windowRules)
	o.StateDir = t.TempDir()
	a := start(t, o)
	url := "http://" + a.Addr("admin").String() + "/ratelimitd.v1.AdminService/"
	read := func(resp *http.Response, err error) (int, string) {
		t.Helper()
		return read(t, resp, err)
	}
	const asked = `{"request": "shop | [api=x]"}`
	if code, body := read(http.Post(url+"Explain", "application/json", strings.NewReader(asked))); code != http.StatusOK || !strings.Contains(body, `"remaining":2`) {
		t.Errorf("explain by POST: got %d %s", code, body)
	}
	query := "?connect=v1&encoding=json&message=" + neturl.QueryEscape(asked)
	if code, body := read(http.Get(url + "Explain" + query)); code != http.StatusOK || !strings.Contains(body, `"remaining":2`) {
		t.Errorf("explain by GET: got %d %s", code, body)
	}
	if code, body := read(http.Get(url + "GrantHits" + query)); code != http.StatusMethodNotAllowed {
		t.Errorf("grant by GET: got %d %s", code, body)
	}
	if code, body := read(http.Post(url+"SetOverride", "application/json", strings.NewReader(
		`{"override": {"rule": "shop.api", "action": "ACTION_LIMIT", "requests": 5}, "ttl": "3600s"}`,
	))); code != http.StatusBadRequest || !strings.Contains(body, "author: want who is responsible") || !strings.Contains(body, "reason: want why") {
		t.Errorf("an override by nobody: got %d %s", code, body)
	}
}

// Rules that people publish reach every node, and a bad version reaches none.
func TestRulesFromRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var nodes []*app.App
	for range 2 {
		o, _ := options(t, windowRules)
		o.Rules, o.RulesFromRedis = "", true
		o.RedisURL, o.RedisTimeout = app.Secret(server.URL()), 5*time.Second
		nodes = append(nodes, start(t, o))
	}
	admin, there := adminOf(t, nodes[0]), dial(t, nodes[1])
	ctx := t.Context()
	apply := func(expect int64, text string) error {
		_, err := admin.ApplyRules(ctx, &v1.ApplyRulesRequest{
			Files: []*v1.RuleFile{{Name: "rules.yaml", Data: []byte(text)}}, ExpectedVersion: expect, Author: "ann", Reason: "ticket 7",
		})
		return err
	}
	decides := func(value string, want rlsv3.RateLimitResponse_Code) func() bool {
		return func() bool {
			resp, err := rlsv3.NewRateLimitServiceClient(there).ShouldRateLimit(context.WithoutCancel(ctx), request("api", value))
			return err == nil && resp.GetOverallCode() == want
		}
	}
	if err := apply(0, windowRules); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first version", decides("a", ok))
	if err := apply(1, "domain: [\n"); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("bad rules: got %v, want %v", err, connect.CodeInvalidArgument)
	}
	if err := apply(0, windowRules); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("on another version: got %v, want %v", err, connect.CodeAborted)
	}
	if err := apply(1, strings.ReplaceAll(windowRules, "requests_per_unit: 2,", "requests_per_unit: 0,")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second version", decides("b", over))
	if _, err := admin.RollbackRules(ctx, &v1.RollbackRulesRequest{Version: 1, ExpectedVersion: 2, Author: "ann", Reason: "ticket 8"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first version again", decides("c", ok))
	eventually(t, "both nodes report it", func() bool {
		list, err := admin.ListNodes(ctx, &v1.ListNodesRequest{})
		return err == nil && len(list.GetNodes()) >= 1
	})
	v, err := admin.VerifyAudit(ctx, &v1.VerifyAuditRequest{})
	if err != nil || v.GetBroken() != "" || v.GetLastSequence() != 3 {
		t.Errorf("audit: got %v, %v, want 3 entries", v, err)
	}
}

// In one process everything is in the state directory, and there after a restart.
func TestOverridesWithoutRedis(t *testing.T) {
	t.Parallel()
	o, _ := options(t, windowRules)
	o.StateDir = t.TempDir()
	a := start(t, o)
	set, err := adminOf(t, a).SetOverride(t.Context(), raise(3))
	if err != nil {
		t.Fatal(err)
	}
	stop(t, a)
	a = start(t, o)
	eventually(t, "the override is in force", func() bool {
		list, err := adminOf(t, a).ListOverrides(t.Context(), &v1.ListOverridesRequest{})
		return err == nil && len(list.GetOverrides()) == 1 && list.GetOverrides()[0].GetId() == set.GetOverride().GetId()
	})
	wantCodes(t, dial(t, a), "api", "x", ok, ok, ok, over)
	if data, err := os.ReadFile(filepath.Join(o.StateDir, "audit.jsonl")); err != nil || strings.Count(string(data), "\n") != 2 {
		t.Errorf("audit log: got %q, %v, want the rules and the override", data, err)
	}
	o.StateDir = ""
	if _, err := adminOf(t, start(t, o)).SetOverride(t.Context(), raise(3)); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("nowhere to keep it: got %v", err)
	}
}

// Others not hearing of this node is said once, not every second.
func TestReportThatFailsIsSaidOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const reports = "rl1:{audit}:nodes"
	if err := server.Client().Set(t.Context(), reports, "no hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	o, log := options(t, windowRules)
	o.RedisURL = app.Secret("redis://" + server.Addr)
	start(t, o)
	eventually(t, "it tries three times", func() bool {
		info, err := server.Client().Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, hset, _ := strings.Cut(info, "cmdstat_hset:")
		line, _, _ := strings.Cut(hset, "\n")
		_, text, _ := strings.Cut(line, "failed_calls=")
		n, _ := strconv.Atoi(strings.TrimSpace(text))
		return n >= 3
	})
	if n := strings.Count(log.String(), "other nodes do not hear of this one"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, log)
	}
}
