package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
)

// call asks a server that speaks TLS, and says why where it cannot.
func TestCallByTLS(t *testing.T) {
	t.Parallel()
	ours := certtest.New(t)
	pair, client := ours.Issue(t, certtest.Leaf{DNSNames: []string{"limits.test"}}), ours.Issue(t, certtest.Leaf{DNSNames: []string{"me.test"}})
	s := startServer(t, oneRule, "--grpc-tls-cert", pair.CertFile, "--grpc-tls-key", pair.KeyFile,
		"--grpc-tls-client-ca", ours.File, "--grpc-tls-client-san", "me.test", "--grpc-tls-min", "1.3")
	shown := []string{"--tls-cert", client.CertFile, "--tls-key", client.KeyFile}
	tests := []struct {
		name  string
		flags []string
		code  int
		says  string
	}{
		{"as it should be", append([]string{"--tls-ca", ours.File}, shown...), exitOK, ""},
		{"another name of the server", append([]string{"--tls-ca", ours.File, "--tls-server-name", "limits.test"}, shown...), exitOK, ""},
		{"a name that it has not", append([]string{"--tls-ca", ours.File, "--tls-server-name", "other.test"}, shown...), exitUnreachable, "limits.test, not other.test"},
		{"the system's authorities", append([]string{"--tls"}, shown...), exitUnreachable, "unknown authority"},
		{"no certificate", []string{"--tls-ca", ours.File}, exitUnreachable, ""},
		{"plain text", nil, exitUnreachable, ""},
		{"half a pair", []string{"--tls-cert", client.CertFile}, exitUsage, "want both"},
		{"a missing file", []string{"--tls-ca", filepath.Join(t.TempDir(), "missing")}, exitUsage, "--tls-ca"},
		{"a file that is no certificate", []string{"--tls-ca", client.KeyFile}, exitUsage, "no certificate in PEM"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var out, talk strings.Builder
			args := append([]string{"call", "--addr", s.GRPC, "--timeout", "20s", "shop | [api=x]"}, test.flags...)
			if code := run(args, &out, &talk); code != test.code || !strings.Contains(talk.String(), test.says) {
				t.Errorf("got exit code %d and %q, want %d and %q", code, talk.String(), test.code, test.says)
			}
		})
	}
}

func TestTLSFlags(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string][]string{
		"want both":                                {"--grpc-tls-cert", "x"},
		"--grpc-tls-client-san: want":              {"--grpc-tls-cert", "x", "--grpc-tls-key", "x", "--grpc-tls-client-san", "x"},
		"--grpc-tls-cert and --grpc-tls-key: want": {"--grpc-tls-client-ca", "x"},
	} {
		var out, talk strings.Builder
		code := run(append([]string{"serve", "--rules", "testdata"}, flags...), &out, &talk)
		if code != exitUsage || !strings.Contains(talk.String(), want) {
			t.Errorf("%v: got exit code %d and %q, want %d and %q", flags, code, talk.String(), exitUsage, want)
		}
	}
}
