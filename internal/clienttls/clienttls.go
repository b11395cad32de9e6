package clienttls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// Files says whom a client trusts, and what it shows. The zero value trusts the system's authorities and shows nothing.
type Files struct {
	CAFile     string // PEM: the authorities to trust, and no others; "": the system's
	CertFile   string // PEM: the certificate to show, with KeyFile
	KeyFile    string // PEM: its private key
	ServerName string // what the other side's certificate must name; "": the host that is dialled
}

// Names are what its user calls the files, for errors: a flag or a few words.
type Names struct{ CA, Cert, Key string }

// Config reads the files as they are now. It allows TLS 1.2 and later. The error says which file is wrong, or that two do
// not belong together.
func (f *Files) Config(n Names) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CAFile != "" {
		pem, err := os.ReadFile(f.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.CA, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s %q: no certificate in PEM", n.CA, f.CAFile)
		}
	}
	if f.CertFile == "" && f.KeyFile == "" {
		return c, nil
	}
	if f.CertFile == "" || f.KeyFile == "" {
		return nil, fmt.Errorf("%s and %s: want both or none", n.Cert, n.Key)
	}
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s %q and %s %q: %w", n.Cert, f.CertFile, n.Key, f.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
