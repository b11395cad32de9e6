package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/clienttls"
	"github.com/ratelimitd/ratelimitd/internal/config/xds"
)

// xdsFlags are the flags of serve that name a control plane.
type xdsFlags struct {
	server, nodeID    string
	metadata, headers []string
	tls               bool
	files             clienttls.Files
	maxMessageBytes   int
}

func (f *xdsFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&f.server, "xds-server", "", "take the rules from the control plane at this `address`, by xDS, instead of --rules")
	flags.StringVar(&f.nodeID, "xds-node-id", xds.DefaultNodeID, "what this process is called there; Envoy Gateway wants envoy-ratelimit")
	flags.StringSliceVar(&f.metadata, "xds-node-metadata", nil, "more that it is told of this process, comma-separated: `key=value`")
	flags.StringSliceVar(&f.headers, "xds-header", nil, "headers that are sent to it, comma-separated: `name=value`; better set by environment: other users can read a command line")
	flags.BoolVar(&f.tls, "xds-tls", false, "speak TLS to it; said already by any of the next four")
	flags.StringVar(&f.files.CertFile, "xds-tls-cert", "", "show it the certificate of this `file`")
	flags.StringVar(&f.files.KeyFile, "xds-tls-key", "", "the certificate's key, in this `file`")
	flags.StringVar(&f.files.CAFile, "xds-tls-ca", "", "trust the authorities of this `file` to know it, and no others (without: the system's)")
	flags.StringVar(&f.files.ServerName, "xds-tls-server-name", "", "the `name` in its certificate, if it is not the address's")
	flags.IntVar(&f.maxMessageBytes, "xds-max-message-bytes", xds.DefaultMaxMessageBytes, "largest response that is taken from it: all rules at once")
	secrets(flags, "xds-header", "xds-node-metadata")
}

// options translates the flags. Without a server nothing else may be said of it.
func (f *xdsFlags) options() (o xds.Options, err error) {
	o = xds.Options{Server: f.server, NodeID: f.nodeID, MaxMessageBytes: f.maxMessageBytes}
	if f.tls || f.files != (clienttls.Files{}) {
		o.TLS = &f.files
	}
	if o.NodeMetadata, err = pairs("--xds-node-metadata", f.metadata); err != nil {
		return o, err
	}
	if o.Headers, err = pairs("--xds-header", f.headers); err != nil {
		return o, err
	}
	if o.Server == "" && (o.TLS != nil || o.NodeMetadata != nil || o.Headers != nil) {
		return o, usagef("--xds-… without --xds-server: want its address")
	}
	return o, nil
}

// pairs splits key=value texts, which are not shown in errors: a header may be a secret.
func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(list))
	for i, text := range list {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, usagef("%s: item %d: want key=value", flag, i+1)
		}
		m[key] = value
	}
	return m, nil
}
