package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// secure greets the node at addr by TLS.
func (r *Redis) secure(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	config, err := r.tlsConfig(addr)
	if err != nil {
		_ = conn.Close() // nothing was sent
		return nil, err
	}
	c := tls.Client(conn, config)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says more
		return nil, &net.OpError{Op: "dial", Net: "tls", Addr: conn.RemoteAddr(), Err: err}
	}
	return c, nil
}

// signed returns an error unless one of the roots vouches for the other side, whatever it calls itself.
func signed(cs tls.ConnectionState, roots *x509.CertPool) error {
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range cs.PeerCertificates[1:] { // there is a first: a server shows one
		o.Intermediates.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(o)
	return err
}

// tlsConfig reads the files again: a certificate that was renewed is presented to the next connection.
func (r *Redis) tlsConfig(addr string) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, // what Redis may be built without is 1.3
		ServerName: r.serverName,
		//nolint:gosec // only where the operator asks for it by a flag of that name
		InsecureSkipVerify: r.files.SkipVerify,
	}
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(addr) // "" only where no connection is made
	}
	if r.files.CAFile != "" {
		pem, err := os.ReadFile(r.files.CAFile)
		if err != nil {
			return nil, fmt.Errorf("redis ca file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redis ca file: %s: no certificate in PEM", r.files.CAFile)
		}
	}
	if r.files.AnyName && !r.files.SkipVerify {
		//nolint:gosec // signed verifies, all but the name
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error { return signed(cs, c.RootCAs) }
	}
	switch {
	case r.files.CertFile != "" && r.files.KeyFile != "":
		pair, err := tls.LoadX509KeyPair(r.files.CertFile, r.files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("redis cert and key files: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	case r.files.CertFile != "" || r.files.KeyFile != "":
		return nil, errors.New("redis cert and key files: want both or none")
	}
	return c, nil
}
