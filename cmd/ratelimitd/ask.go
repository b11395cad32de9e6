package main

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/engine/shorthand"
)

// ask is a request as the command line gives it: in one line, or piece by piece.
type ask struct {
	domain      string
	descriptors []string
	hits        uint32
	override    string
}

// asksHelp explains requests in the help of the commands that take one.
const asksHelp = `A request is written in one line: the domain, the descriptors with their entries, and
if need be the hits: 'shop | [tier=pro, user=u1] [path=/search] | hits=2'. Behind a
descriptor may stand its own hits (h5; h0 looks without spending; h-5 gives back) and a
limit of its own (L10/minute). Text with marks in it is quoted: [path="/a, b"].
Or piece by piece, by --domain and --descriptor.`

func (a *ask) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&a.domain, "domain", "", "`name` of the domain")
	flags.StringArrayVar(&a.descriptors, "descriptor", nil, "a descriptor, `k=v,k2=v2`; once for each")
	flags.Uint32Var(&a.hits, "hits", 0, "hits of the request (0: 1)")
	flags.StringVar(&a.override, "override", "", "a limit that the request brings for every descriptor, `N/unit`: 10/minute")
}

// request returns what args and flags ask for.
func (a *ask) request(args []string) (*engine.Request, error) {
	pieces := a.domain != "" || len(a.descriptors) > 0 || a.hits != 0
	var req *engine.Request
	var err error
	switch {
	case len(args) == 1 && pieces:
		return nil, usagef("want a request in one line, or --domain, --descriptor and --hits, not both")
	case len(args) == 1:
		if req, err = shorthand.ParseRequest(args[0]); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	case a.domain == "" || len(a.descriptors) == 0:
		return nil, usagef("want a request: 'domain | [key=value]', or --domain and --descriptor")
	default:
		req = &engine.Request{Domain: a.domain, Hits: a.hits}
		for _, text := range a.descriptors {
			d, err := shorthand.ParseDescriptor(text)
			if err != nil {
				return nil, usagef("--descriptor: %w", err)
			}
			req.Descriptors = append(req.Descriptors, d)
		}
	}
	if a.override != "" {
		o, err := shorthand.ParseOverride(a.override)
		if err != nil {
			return nil, usagef("--override: %w", err)
		}
		for i := range req.Descriptors {
			req.Descriptors[i].HasOverride, req.Descriptors[i].Override = true, o
		}
	}
	return req, nil
}
