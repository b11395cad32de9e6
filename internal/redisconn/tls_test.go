package redisconn

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// Whom a certificate names does not matter where that is wanted; who signed it always does, unless nothing matters.
func TestNameOfACertificate(t *testing.T) {
	t.Parallel()
	ours, stranger := certtest.New(t), certtest.New(t)
	shown := func(by *certtest.Authority) *tls.Config {
		t.Helper()
		pair := by.Issue(t, certtest.Leaf{})
		c, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{c}}
	}
	for _, test := range []struct {
		name   string
		o      Options
		server *tls.Config
		want   string // part of the error; "": none
	}{
		{"its name", Options{CAFile: ours.File, ServerName: "127.0.0.1"}, shown(ours), ""},
		{"another name", Options{CAFile: ours.File, ServerName: "redis.test"}, shown(ours), "redis.test"},
		{"another name, any will do", Options{CAFile: ours.File, ServerName: "redis.test", AnyName: true}, shown(ours), ""},
		{"another authority, any name will do", Options{CAFile: ours.File, ServerName: "redis.test", AnyName: true}, shown(stranger), "unknown authority"},
		{"another authority, anything will do", Options{CAFile: ours.File, ServerName: "redis.test", AnyName: true, SkipVerify: true}, shown(stranger), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_ = tls.Server(conn, test.server).Handshake() // the client says how it went
			}()
			test.o.URL = "redis://" + ln.Addr().String()
			r, err := New(test.o)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := r.dial(t.Context(), "tcp", ln.Addr().String())
			if err == nil {
				conn.Close()
			}
			<-done
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
