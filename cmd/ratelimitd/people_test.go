package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// The token is shown to the admin port that was named, and to nobody that it names.
func TestTokenStaysWithTheAdminPort(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			t.Error("another server was shown the token")
		}
		w.Header().Set("Content-Type", "application/proto")
	}))
	defer elsewhere.Close()
	var shown atomic.Value
	named := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer named.Close()
	var out, said strings.Builder
	code := run([]string{"nodes", "--admin-url", named.URL, "--token-file", fileWith(t, "canary")}, &out, &said)
	if code == exitOK || said.Len() == 0 {
		t.Errorf("redirected: got exit %d and %q, want a failure", code, said.String())
	}
	if shown.Load() != "Bearer canary" {
		t.Errorf("the port that was named was shown %v, want the token", shown.Load())
	}
	if asked.Load() != 0 {
		t.Errorf("another server was asked %d times, want never", asked.Load())
	}
}
