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
