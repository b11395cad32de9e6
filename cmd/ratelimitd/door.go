package main

import (
	"crypto/tls"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/clienttls"
)

// door is the gRPC port of a running server, and how to greet there.
type door struct {
	addr  string
	tls   bool
	files clienttls.Files
}

func (d *door) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&d.addr, "addr", "127.0.0.1:8081", "`address` of the server's gRPC port; unix:///path for a socket")
	flags.BoolVar(&d.tls, "tls", false, "greet by TLS, trusting the system's authorities; any of the next flags implies it")
	flags.StringVar(&d.files.CAFile, "tls-ca", "", "PEM `file` of the authorities to trust instead")
	flags.StringVar(&d.files.CertFile, "tls-cert", "", "PEM `file` of a certificate to show, with --tls-key")
	flags.StringVar(&d.files.KeyFile, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&d.files.ServerName, "tls-server-name", "", "`name` that the server's certificate must have (default: the host of --addr)")
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
	if !d.tls && d.files == (clienttls.Files{}) {
		return insecure.NewCredentials(), nil
	}
	c, err := clientTLS(&d.files)
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(c), nil
}

// clientTLS reads the files that --tls-ca, --tls-cert and --tls-key name.
func clientTLS(files *clienttls.Files) (*tls.Config, error) {
	c, err := files.Config(clienttls.Names{CA: "--tls-ca", Cert: "--tls-cert", Key: "--tls-key"})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return c, nil
}
