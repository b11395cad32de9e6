// Package certtest hides how certificates are made for a test: authorities of its own, and what they sign, in files.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. Made by New; not safe for concurrent use.
type Authority struct {
	File string         // its own certificate, in PEM
	Pool *x509.CertPool // which holds that alone

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf describes a certificate to Issue. The zero value is of 127.0.0.1, good for an hour, for servers and clients.
type Leaf struct {
	DNSNames []string
	URI      string        // "": none
	For      time.Duration // from now; negative: ended so long ago. 0 means an hour
}

// Pair is where a certificate and its key are, in PEM.
type Pair struct{ CertFile, KeyFile string }

// New returns an authority whose certificate is in a folder of the test.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t), File: filepath.Join(t.TempDir(), "ca.crt")}
	template := &x509.Certificate{
		SerialNumber: newSerial(t), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, a.File, "CERTIFICATE", der)
	a.Pool = x509.NewCertPool()
	a.Pool.AddCert(a.cert)
	return a
}

// Issue writes a new certificate and its key into a folder of the test.
func (a *Authority) Issue(t testing.TB, leaf Leaf) Pair {
	t.Helper()
	dir := t.TempDir()
	p := Pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	a.IssueTo(t, p, leaf)
	return p
}

// IssueTo writes a new certificate and its key over what is there, the certificate first.
func (a *Authority) IssueTo(t testing.TB, p Pair, leaf Leaf) {
	t.Helper()
	if leaf.For == 0 {
		leaf.For = time.Hour
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: newSerial(t), DNSNames: leaf.DNSNames, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(leaf.For),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if leaf.URI != "" {
		uri, err := url.Parse(leaf.URI)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{uri}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.CertFile, "CERTIFICATE", der)
	write(t, p.KeyFile, "PRIVATE KEY", pkcs8)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newSerial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
