package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are files of a certificate authority, and of a certificate it has issued that serves as a server's and as a
// client's, for 127.0.0.1 and localhost.
type Certs struct {
	CAFile, CertFile, KeyFile string

	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	roots     *x509.CertPool
}

// NewCerts makes an authority and a certificate, which end with the test.
func NewCerts(t testing.TB) *Certs {
	t.Helper()
	dir := t.TempDir()
	c := &Certs{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
		key: newKey(t), roots: x509.NewCertPool(),
	}
	template := certificate("test authority")
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &c.key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.authority, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	c.roots.AddCert(c.authority)
	write(t, c.CAFile, "CERTIFICATE", der)
	c.Issue(t, c.CertFile, c.KeyFile)
	return c
}

// Issue writes another certificate to files.
func (c *Certs) Issue(t testing.TB, certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	template := certificate("test")
	template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, c.authority, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, "CERTIFICATE", der)
	write(t, keyFile, "PRIVATE KEY", private)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
	}
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client returns how a client connects; nil for no TLS.
func (c *Certs) client() *tls.Config {
	if c == nil {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.roots, ServerName: "127.0.0.1"}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		return &pair, err
	}
	return config
}

// args returns what makes a server at port as s says.
func (s *Setup) args(port string) []string {
	args := []string{"--port", port}
	if s.Certs != nil {
		args = []string{
			"--port", "0", "--tls-port", port, "--tls-replication", "yes", "--tls-cluster", "yes",
			"--tls-ca-cert-file", s.Certs.CAFile, "--tls-cert-file", s.Certs.CertFile, "--tls-key-file", s.Certs.KeyFile,
			"--tls-auth-clients", map[bool]string{true: "yes", false: "no"}[s.Mutual],
		}
	}
	if s.Password != "" {
		args = append(args, "--requirepass", s.Password, "--masterauth", s.Password)
	}
	return args
}

func (s *Setup) dial(addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: time.Second}
	if s.Certs != nil {
		return tls.DialWithDialer(d, "tcp", addr, s.Certs.client())
	}
	return d.Dial("tcp", addr)
}
