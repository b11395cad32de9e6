package clienttls_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/certtest"
	"github.com/ratelimitd/ratelimitd/internal/clienttls"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	pair, other := authority.Issue(t, certtest.Leaf{}), authority.Issue(t, certtest.Leaf{})
	for _, tt := range []struct {
		name  string
		files clienttls.Files
		want  string // the error's beginning; "": none
	}{
		{"nothing", clienttls.Files{}, ""},
		{"all of it", clienttls.Files{CAFile: authority.File, CertFile: pair.CertFile, KeyFile: pair.KeyFile, ServerName: "name"}, ""},
		{"no such authorities", clienttls.Files{CAFile: "/nowhere"}, "--ca: open /nowhere: "},
		{"authorities without any", clienttls.Files{CAFile: pair.KeyFile}, `--ca "` + pair.KeyFile + `": no certificate in PEM`},
		{"no key", clienttls.Files{CertFile: pair.CertFile}, "--cert and --key: want both or none"},
		{"no certificate", clienttls.Files{KeyFile: pair.KeyFile}, "--cert and --key: want both or none"},
		{"no such certificate", clienttls.Files{CertFile: "/nowhere", KeyFile: pair.KeyFile}, `--cert "/nowhere" and --key "` + pair.KeyFile + `": `},
		{"another's key", clienttls.Files{CertFile: pair.CertFile, KeyFile: other.KeyFile}, `--cert "` + pair.CertFile + `" and --key "` + other.KeyFile + `": tls: `},
	} {
		c, err := tt.files.Config(clienttls.Names{CA: "--ca", Cert: "--cert", Key: "--key"})
		if tt.want != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		trusts, shows := c.RootCAs != nil, len(c.Certificates) == 1
		if trusts != (tt.files.CAFile != "") || shows != (tt.files.CertFile != "") || c.ServerName != tt.files.ServerName {
			t.Errorf("%s: got %+v", tt.name, c)
		}
	}
}
