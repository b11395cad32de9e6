package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"

	"github.com/ratelimitd/ratelimitd/internal/clienttls"
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
	files := clienttls.Files{CAFile: r.files.CAFile, CertFile: r.files.CertFile, KeyFile: r.files.KeyFile, ServerName: r.serverName}
	if files.ServerName == "" {
		files.ServerName, _, _ = net.SplitHostPort(addr) // "" only where no connection is made
	}
	c, err := files.Config(clienttls.Names{CA: "redis ca file", Cert: "redis cert file", Key: "redis key file"})
	if err != nil {
		return nil, err
	}
	//nolint:gosec // only where the operator asks for it by a flag of that name
	c.InsecureSkipVerify = r.files.SkipVerify
	if r.files.AnyName && !r.files.SkipVerify {
		//nolint:gosec // signed verifies, all but the name
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error { return signed(cs, c.RootCAs) }
	}
	return c, nil
}
