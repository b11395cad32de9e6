package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/descriptorpb"

	v1 "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1"
)

// Role is what a caller may do. Each may do what those before it may.
type Role int

// The roles.
const (
	Nobody Role = iota
	Reader      // reads pages: metrics, profiles, the current limits
	Viewer      // calls what has no side effects
	Editor      // changes things
)

// Access says who may do what.
type Access struct {
	// Files that hold the token of editors and that of viewers, which a caller shows as Authorization: Bearer. They are
	// read at every call, so that a token can be rotated. With either of them, who shows none is nobody.
	EditorTokenFile, ViewerTokenFile string

	// Whether the port admits nobody without a certificate that it trusts. Then, without token files, a caller is an
	// editor if his certificate has one of these names (DNS names or URIs), else a viewer.
	Certificates bool
	Editors      []string

	Anonymous Role     // without token files and certificates: what everybody is who reaches the port
	Hosts     []string // names by which the port may be called, besides addresses and localhost
}

// tokens reports whether callers must show one.
func (a *Access) tokens() bool { return a.EditorTokenFile != "" || a.ViewerTokenFile != "" }

// Guard lets h answer those calls that a allows. It refuses names that are not the port's (a page elsewhere may have its
// own name lead here), requests that a browser makes for another site, and callers whose role is too small.
func Guard(a Access, log *slog.Logger, h http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, log, http.StatusForbidden, "request of another site")
	}))
	inner := protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		role := a.role(r, log)
		switch need := needed(r.URL.Path); {
		case role == Nobody:
			w.Header().Set("WWW-Authenticate", `Bearer realm="ratelimitd"`)
			refuse(w, r, log, http.StatusUnauthorized, "want Authorization: Bearer with the token of a viewer or an editor, or a certificate")
		case role < need && role == Reader:
			refuse(w, r, log, http.StatusForbidden, "the service of an admin port that other machines reach wants --admin-token-file")
		case role < need:
			refuse(w, r, log, http.StatusForbidden, "want the token or the certificate of an editor")
		default:
			h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{role, a.shown(r), r.RemoteAddr})))
		}
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.knows(r.Host) {
			refuse(w, r, log, http.StatusMisdirectedRequest, "want an address, localhost or a name of --admin-host as Host")
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		inner.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, r *http.Request, log *slog.Logger, code int, why string) {
	log.Warn("admin call refused", "path", r.URL.Path, "method", r.Method, "peer", r.RemoteAddr, "status", code, "why", why)
	if calls := connect.NewErrorWriter(); calls.IsSupported(r) {
		kind := connect.CodePermissionDenied
		if code == http.StatusUnauthorized {
			kind = connect.CodeUnauthenticated
		}
		_ = calls.Write(w, r, connect.NewError(kind, errors.New(why))) // the caller's connection is all that can fail
		return
	}
	http.Error(w, why, code)
}

// knows reports whether a request's Host is one of the port's. Pages that anybody may read have no need of it.
func (a *Access) knows(host string) bool {
	if !a.tokens() && !a.Certificates && a.Anonymous <= Reader {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	same := func(name string) bool { return strings.EqualFold(name, host) }
	return same("localhost") || slices.ContainsFunc(a.Hosts, same)
}

// role returns who the caller is.
func (a *Access) role(r *http.Request, log *slog.Logger) Role {
	switch {
	case a.tokens():
	case a.Certificates:
		return a.certified(r.TLS)
	default:
		return a.Anonymous
	}
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || shown == "" {
		return Nobody
	}
	// Both are compared always, and in constant time.
	editor, viewer := holds(a.EditorTokenFile, shown, log), holds(a.ViewerTokenFile, shown, log)
	switch {
	case editor:
		return Editor
	case viewer:
		return Viewer
	default:
		return Nobody
	}
}

// certified returns who has shown a certificate that was verified.
func (a *Access) certified(state *tls.ConnectionState) Role {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Nobody
	}
	for _, name := range names(state.PeerCertificates[0]) {
		if slices.Contains(a.Editors, name) {
			return Editor
		}
	}
	return Viewer
}

// names are those of a certificate that a role can be given to.
func names(leaf *x509.Certificate) []string {
	out := slices.Clone(leaf.DNSNames)
	for _, uri := range leaf.URIs {
		out = append(out, uri.String())
	}
	return out
}

// holds reports whether a file holds a token. One that cannot be read, or is empty, holds none.
func holds(file, shown string, log *slog.Logger) bool {
	if file == "" {
		return false
	}
	data, err := os.ReadFile(file)
	if err != nil {
		log.Error("token file of the admin port cannot be read", "error", err)
		return false
	}
	token := strings.TrimSpace(string(data))
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1 && token != ""
}

// needed returns the role that a path wants. Calls of the service want an editor, unless they say that they change
// nothing.
func needed(path string) Role {
	service := v1.File_ratelimitd_v1_admin_proto.Services().Get(0)
	name, ok := strings.CutPrefix(path, "/"+string(service.FullName())+"/")
	if !ok {
		return Reader
	}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		options, ok := m.Options().(*descriptorpb.MethodOptions)
		if string(m.Name()) == name && ok && options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			return Viewer
		}
	}
	return Editor
}

// shown says by what the caller is known.
func (a *Access) shown(r *http.Request) string {
	switch {
	case a.tokens():
		return "by token"
	case a.Certificates && r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		return "by certificate of " + strings.Join(names(r.TLS.PeerCertificates[0]), ", ")
	default:
		return "without a token"
	}
}

type callerKey struct{}

// caller is who makes a call, as far as the port can tell.
type caller struct {
	role  Role
	shown string // how he is known: "by token"
	peer  string
}

// who names who is responsible for a change: the author that the call names, and what is known of the caller.
func who(ctx context.Context, author string) string {
	c, _ := ctx.Value(callerKey{}).(caller)
	host, _, err := net.SplitHostPort(c.peer)
	if err != nil {
		host = c.peer
	}
	return author + " (" + c.shown + " from " + host + ")"
}
