package admin

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/descriptorpb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
)

const (
	editorToken = "the-token-of-editors"
	viewerToken = "the-token-of-viewers"
)

// files writes both tokens, with a newline at their end as editors leave it.
func files(t *testing.T) Access {
	t.Helper()
	dir := t.TempDir()
	a := Access{EditorTokenFile: filepath.Join(dir, "editor"), ViewerTokenFile: filepath.Join(dir, "viewer"), Hosts: []string{"Limits.internal"}}
	for path, token := range map[string]string{a.EditorTokenFile: editorToken, a.ViewerTokenFile: viewerToken} {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// routes are all paths of the port by the role they want: every method of the service, and a page.
func routes(t *testing.T) map[string]Role {
	t.Helper()
	out := map[string]Role{"/metrics": Reader, "/debug/pprof/heap": Reader, "/": Reader}
	service := v1.File_ratelimitd_v1_admin_proto.Services().Get(0)
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		out["/"+string(service.FullName())+"/"+string(m.Name())] = Editor
		if m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			out["/"+string(service.FullName())+"/"+string(m.Name())] = Viewer
		}
	}
	if len(out) < 16 {
		t.Fatalf("only %d routes", len(out))
	}
	return out
}

// The methods that change things, named one by one: a new one that is marked as harmless by mistake shows here.
func TestWhatChangesThings(t *testing.T) {
	t.Parallel()
	var got []string
	for path, need := range routes(t) {
		if need == Editor {
			got = append(got, path[strings.LastIndex(path, "/")+1:])
		}
	}
	want := map[string]bool{"ApplyRules": true, "RollbackRules": true, "SetOverride": true, "RemoveOverride": true, "GrantHits": true}
	for _, name := range got {
		if !want[name] {
			t.Errorf("%s wants an editor", name)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %q, want %v", got, want)
	}
	for _, path := range []string{"/ratelimitd.v1.AdminService/", "/ratelimitd.v1.AdminService/Unknown", "/ratelimitd.v1.AdminService/GetRules/"} {
		if got := needed(path); got != Editor {
			t.Errorf("%s: got %v, want %v", path, got, Editor)
		}
	}
}

// Every route, by everybody.
func TestAccess(t *testing.T) {
	t.Parallel()
	tokens := files(t)
	certified := Access{Certificates: true, Editors: []string{"ann.test"}}
	open, remote := Access{Anonymous: Editor}, Access{Anonymous: Reader}
	passed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	const (
		yes = http.StatusTeapot
		no  = http.StatusForbidden
		who = http.StatusUnauthorized
		lie = http.StatusMisdirectedRequest
	)
	for _, tt := range []struct {
		name   string
		access Access
		change func(*http.Request)
		want   map[Role]int // by what a route wants
	}{
		{"loopback", open, nil, map[Role]int{Reader: yes, Viewer: yes, Editor: yes}},
		{"loopback, by a name that a page gave it", open, func(r *http.Request) { r.Host = "evil.example:8082" }, map[Role]int{Reader: lie, Viewer: lie, Editor: lie}},
		{"loopback, localhost", open, func(r *http.Request) { r.Host = "localhost:8082" }, map[Role]int{Reader: yes, Viewer: yes, Editor: yes}},
		{"loopback, IPv6", open, func(r *http.Request) { r.Host = "[::1]:8082" }, map[Role]int{Reader: yes, Viewer: yes, Editor: yes}},
		{"loopback, another site's page", open, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, map[Role]int{Reader: no, Viewer: no, Editor: no}},
		{"loopback, a sibling's page", open, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, map[Role]int{Reader: no, Viewer: no, Editor: no}},
		{"loopback, another origin", open, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, map[Role]int{Reader: no, Viewer: no, Editor: no}},
		{"remote without tokens", remote, func(r *http.Request) { r.Host = "metrics.example" }, map[Role]int{Reader: yes, Viewer: no, Editor: no}},
		{"no token", tokens, nil, map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"empty token", tokens, bearer(""), map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"wrong token", tokens, bearer("the-token-of-nobody!"), map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"part of a token", tokens, bearer(editorToken[:10]), map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"no bearer", tokens, func(r *http.Request) { r.SetBasicAuth("ann", editorToken) }, map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"viewer", tokens, bearer(viewerToken), map[Role]int{Reader: yes, Viewer: yes, Editor: no}},
		{"editor", tokens, bearer(editorToken), map[Role]int{Reader: yes, Viewer: yes, Editor: yes}},
		{"editor, by the port's name", tokens, func(r *http.Request) { bearer(editorToken)(r); r.Host = "limits.internal" }, map[Role]int{Reader: yes, Viewer: yes, Editor: yes}},
		{"editor, by another name", tokens, func(r *http.Request) { bearer(editorToken)(r); r.Host = "evil.example" }, map[Role]int{Reader: lie, Viewer: lie, Editor: lie}},
		{"certificates, none shown", certified, nil, map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"certificate of a viewer", certified, shows("bob.test"), map[Role]int{Reader: yes, Viewer: yes, Editor: no}},
		{"certificate of an editor", certified, shows("ann.test"), map[Role]int{Reader: yes, Viewer: yes, Editor: yes}},
		{"certificate that was not verified", certified, func(r *http.Request) { shows("ann.test")(r); r.TLS.VerifiedChains = nil }, map[Role]int{Reader: who, Viewer: who, Editor: who}},
		{"token files that are gone", Access{EditorTokenFile: "/nowhere", Anonymous: Editor}, bearer(editorToken), map[Role]int{Reader: who, Viewer: who, Editor: who}},
	} {
		guard := Guard(tt.access, slog.New(slog.DiscardHandler), passed)
		for path, need := range routes(t) {
			r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8082"+path, strings.NewReader("{}"))
			if tt.change != nil {
				tt.change(r)
			}
			w := httptest.NewRecorder()
			guard.ServeHTTP(w, r)
			if w.Code != tt.want[need] {
				t.Errorf("%s, %s: got %d, want %d", tt.name, path, w.Code, tt.want[need])
			}
			if body, _ := io.ReadAll(w.Body); strings.Contains(string(body), editorToken) {
				t.Errorf("%s, %s: tells the token", tt.name, path)
			}
		}
	}
}

// shows is a caller over TLS whose certificate was verified.
func shows(name string) func(*http.Request) {
	leaf := &x509.Certificate{DNSNames: []string{name}}
	return func(r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	}
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// A token that is rotated holds at once, and the one before it no more.
func TestTokenRotates(t *testing.T) {
	t.Parallel()
	a := files(t)
	log := slog.New(slog.DiscardHandler)
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
	bearer(editorToken)(r)
	if got := a.role(r, log); got != Editor {
		t.Errorf("got %v, want %v", got, Editor)
	}
	if err := os.WriteFile(a.EditorTokenFile, []byte("another-token-altogether"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := a.role(r, log); got != Nobody {
		t.Errorf("after the rotation: got %v, want %v", got, Nobody)
	}
}

// GET reaches what has no side effects, and nothing else.
func TestGetChangesNothing(t *testing.T) {
	t.Parallel()
	path, h := New(Options{Unkept: "nowhere"}).Handler()
	for route, need := range routes(t) {
		if !strings.HasPrefix(route, path) || need != Editor {
			continue
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, route+"?encoding=json&message=%7B%7D", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: got %d, want %d", route, w.Code, http.StatusMethodNotAllowed)
		}
	}
}
