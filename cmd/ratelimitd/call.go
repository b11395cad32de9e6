package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/engine"
)

func callCommand() *cobra.Command {
	var a ask
	var out output
	var d door
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "call [REQUEST]",
		Short: "Ask a running server",
		Long: `Ask a running server over gRPC, as a proxy would, and print its answer. The hits are
spent. The exit code is 0 if the request is allowed, 3 if it is denied, 4 if the
server cannot be reached.

` + asksHelp,
		Example: `  ratelimitd call 'shop | [tier=pro, user=u1]'
  ratelimitd call --addr limits.internal:8081 --domain shop --descriptor tier=pro,user=u1 --hits 5

  # Over TLS, with a certificate of its own
  ratelimitd call --addr limits.internal:8081 --tls-ca ca.crt --tls-cert me.crt --tls-key me.key 'shop | [tier=pro, user=u1]'

  # Look without spending
  ratelimitd call 'shop | [tier=pro, user=u1]h0' -o json

  # A limit that the request brings along
  ratelimitd call --domain shop --descriptor user=u1 --override 10/minute`,
		Args: cobra.MaximumNArgs(1),
		RunE: runs(func(cmd *cobra.Command, args []string) error {
			req, err := a.request(args)
			if err != nil {
				return err
			}
			return call(cmd, &d, timeout, req, &out)
		}),
	}
	d.addTo(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", time.Second, "how long to wait for the answer")
	a.addTo(cmd)
	out.addTo(cmd)
	return cmd
}

func call(cmd *cobra.Command, d *door, timeout time.Duration, req *engine.Request, out *output) error {
	conn, err := d.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
	defer cancel()
	resp := new(rlsv3.RateLimitResponse)
	err = conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, appendRequest(nil, req), resp, grpc.ForceCodecV2(newEncoded()))
	if err != nil {
		st := status.Convert(err)
		code := exitFailure
		if st.Code() == codes.Unavailable || st.Code() == codes.DeadlineExceeded {
			code = exitUnreachable
		}
		return &exitError{code, fmt.Errorf("%s: %s: %s", d.addr, st.Code(), st.Message())}
	}
	ans := newAnswer(resp)
	if err := out.print(cmd.OutOrStdout(), ans, ans.table); err != nil {
		return err
	}
	if resp.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT {
		return &exitError{code: exitFindings}
	}
	return nil
}

// answer is what call prints.
type answer struct {
	Code     string         `json:"code"` // OK or OVER_LIMIT, as on the wire
	Statuses []answerStatus `json:"statuses"`
	Headers  []string       `json:"headers,omitempty"` // "name: value"
	Body     string         `json:"body,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

type answerStatus struct {
	Code      string `json:"code"`
	Limit     string `json:"limit,omitempty"` // 100/minute; none applies if empty
	Name      string `json:"name,omitempty"`
	Remaining uint32 `json:"remaining"`
	Reset     string `json:"duration_until_reset,omitempty"`
}

func newAnswer(resp *rlsv3.RateLimitResponse) *answer {
	a := &answer{Code: resp.OverallCode.String(), Body: string(resp.RawBody), Statuses: []answerStatus{}}
	for _, s := range resp.Statuses {
		st := answerStatus{Code: s.Code.String(), Name: s.CurrentLimit.GetName(), Remaining: s.LimitRemaining}
		if l := s.CurrentLimit; l != nil {
			st.Limit = strconv.FormatUint(uint64(l.RequestsPerUnit), 10) + "/" + strings.ToLower(l.Unit.String())
			if m := l.GetUnitMultiplier().GetValue(); m > 1 {
				st.Limit = fmt.Sprintf("%d/%d%s", l.RequestsPerUnit, m, strings.ToLower(l.Unit.String()))
			}
		}
		if s.DurationUntilReset != nil {
			st.Reset = s.DurationUntilReset.AsDuration().String()
		}
		a.Statuses = append(a.Statuses, st)
	}
	for _, h := range resp.ResponseHeadersToAdd {
		a.Headers = append(a.Headers, header(h))
	}
	if resp.DynamicMetadata != nil {
		a.Metadata = resp.DynamicMetadata.AsMap()
	}
	return a
}

func header(h *corev3.HeaderValue) string {
	value := h.Value
	if value == "" {
		value = string(h.RawValue)
	}
	return h.Key + ": " + value
}

func (a *answer) table(w io.Writer) {
	writeLine(w, "%s", a.Code)
	lines := [][]string{{"STATUS", "LIMIT", "NAME", "REMAINING", "RESET"}}
	for _, s := range a.Statuses {
		remaining := strconv.FormatUint(uint64(s.Remaining), 10)
		if s.Limit == "" && s.Remaining == 0 {
			remaining = ""
		}
		lines = append(lines, []string{s.Code, dash(s.Limit), dash(s.Name), dash(remaining), dash(s.Reset)})
	}
	columns(w, lines)
	for _, h := range a.Headers {
		writeLine(w, "%s", h)
	}
	if a.Body != "" {
		writeLines(w, a.Body)
	}
}
