package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// door is the gRPC port of a running server, and how to greet there.
type door struct {
	addr                  string
	tls                   bool
	ca, cert, key, server string
}

func (d *door) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&d.addr, "addr", "127.0.0.1:8081", "`address` of the server's gRPC port; unix:///path for a socket")
	flags.BoolVar(&d.tls, "tls", false, "greet by TLS, trusting the system's authorities; any of the next flags implies it")
	flags.StringVar(&d.ca, "tls-ca", "", "PEM `file` of the authorities to trust instead")
	flags.StringVar(&d.cert, "tls-cert", "", "PEM `file` of a certificate to show, with --tls-key")
	flags.StringVar(&d.key, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&d.server, "tls-server-name", "", "`name` that the server's certificate must have (default: the host of --addr)")
}

// dial returns a connection that is made when it is needed.
func (d *door) dial() (*grpc.ClientConn, error) {
	creds, err := d.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(d.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, usagef("--addr: %w", err)
	}
	return conn, nil
}

func (d *door) credentials() (credentials.TransportCredentials, error) {
	if !d.tls && d.ca == "" && d.cert == "" && d.key == "" && d.server == "" {
		return insecure.NewCredentials(), nil
	}
	c, err := d.config()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// config says whom to trust, and what to show.
func (d *door) config() (*tls.Config, error) {
	c := &tls.Config{ServerName: d.server, MinVersion: tls.VersionTLS12}
	if d.ca != "" {
		pem, err := os.ReadFile(d.ca)
		if err != nil {
			return nil, usagef("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca: %s: no certificate in PEM", d.ca)
		}
	}
	if d.cert != "" || d.key != "" {
		if d.cert == "" || d.key == "" {
			return nil, usagef("--tls-cert and --tls-key: want both")
		}
		pair, err := tls.LoadX509KeyPair(d.cert, d.key)
		if err != nil {
			return nil, usagef("--tls-cert and --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
