package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	v1connect "github.com/ratelimitd/ratelimitd/api/proto/ratelimitd/v1/ratelimitdv1connect"
	"github.com/ratelimitd/ratelimitd/internal/clienttls"
)

// adminTimeout is how long a call of the admin port may take: rules of many megabytes are read anew.
const adminTimeout = 30 * time.Second

// adminFlags say which admin port to call, and as whom.
type adminFlags struct {
	url, tokenFile string
	files          clienttls.Files
}

func (f *adminFlags) addTo(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.url, "admin-url", "http://127.0.0.1:8082", "`URL` of the admin port of any node")
	flags.StringVar(&f.files.CAFile, "tls-ca", "", "PEM `file` of the authorities to trust instead of the system's")
	flags.StringVar(&f.files.CertFile, "tls-cert", "", "PEM `file` of a certificate to show, with --tls-key")
	flags.StringVar(&f.files.KeyFile, "tls-key", "", "PEM `file` of its key")
	flags.StringVar(&f.tokenFile, "token-file", "", "the `file` that holds the token to show to the admin port")
}

// client returns a client of the admin service.
func (f *adminFlags) client() (v1connect.AdminServiceClient, error) {
	token := ""
	if f.tokenFile != "" {
		data, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, usagef("--token-file: %w", err)
		}
		if token = strings.TrimSpace(string(data)); token == "" {
			return nil, usagef("--token-file: %s is empty", f.tokenFile)
		}
	}
	if !strings.HasPrefix(f.url, "http://") && !strings.HasPrefix(f.url, "https://") {
		return nil, usagef("--admin-url: %q: want http:// or https://", f.url)
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	var err error
	if tr.TLSClientConfig, err = clientTLS(&f.files); err != nil {
		return nil, err
	}
	c := &http.Client{
		Timeout: adminTimeout, Transport: bearer{token, tr},
		// bearer would show the token wherever a redirect leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return v1connect.NewAdminServiceClient(c, strings.TrimSuffix(f.url, "/")), nil
}

// bearer shows a token with every request, if there is one.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// called gives the error of a call its exit code and its words.
func (f *adminFlags) called(err error) error {
	var e *connect.Error
	if !errors.As(err, &e) {
		return err
	}
	if e.Code() == connect.CodeUnavailable || e.Code() == connect.CodeDeadlineExceeded {
		return &exitError{exitUnreachable, fmt.Errorf("%s: %s", f.url, e.Message())}
	}
	return errors.New(e.Message())
}

// motive is who changes something, and why.
type motive struct{ author, reason string }

func (m *motive) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.author, "author", "", "`who` is responsible; must be given")
	cmd.Flags().StringVar(&m.reason, "reason", "", "`why` this is done; must be given")
}

func (m *motive) check() error {
	switch {
	case strings.TrimSpace(m.author) == "":
		return usagef("--author: want who is responsible")
	case strings.TrimSpace(m.reason) == "":
		return usagef("--reason: want why this is done")
	}
	return nil
}

// message is a proto as output prints it: as its JSON.
func message(m proto.Message) json.RawMessage {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m) // a list that is empty is a list
	if err != nil {
		panic(err) // what came over the wire is a message
	}
	return text
}

func stamp(t *timestamppb.Timestamp) string { return t.AsTime().UTC().Format(time.RFC3339) }

// calls wraps what a command of the admin port does.
func calls(f *adminFlags, do func(context.Context, *cobra.Command, v1connect.AdminServiceClient, []string) error) func(*cobra.Command, []string) error {
	return runs(func(cmd *cobra.Command, args []string) error {
		c, err := f.client()
		if err != nil {
			return err
		}
		return f.called(do(cmd.Context(), cmd, c, args))
	})
}

// group is a command that only has others below it.
func group(f *adminFlags, name, short, long, example string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.addTo(cmd)
	cmd.AddCommand(below...)
	return cmd
}
