package transport

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/engine"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// RLConfig returns the handler of /rlconfig: one line a limit of the current rules, in the reference service's form, domains
// in name order and rules in file order. Rules without a limit are not shown; nothing is before the first rules are loaded.
func RLConfig(snapshots engine.Snapshots) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		if s := snapshots.Current(); s != nil {
			for _, d := range s.Domains() {
				for _, r := range d.Rules() {
					writeRule(&b, d.Name, r)
				}
			}
		}
		writeText(w, http.StatusOK, b.String())
	})
}

// writeRule writes a line a limit. What the reference does not know follows what it does.
func writeRule(b *strings.Builder, domain string, r *rule.Rule) {
	line := func(unit string, requests uint32, more string) {
		fmt.Fprintf(b, "%s.%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t%s\n",
			domain, r.Path, unit, requests, r.Shadow, r.Quota, more)
	}
	if r.Unlimited {
		line("UNKNOWN", 0, "")
	}
	for _, l := range r.Limits {
		more := ""
		if l.Multiplier > 1 {
			more += fmt.Sprintf(", unit_multiplier: %d", l.Multiplier)
		}
		if len(r.Limits) > 1 && l.Name != "" {
			more += ", name: " + l.Name
		}
		line(units[l.Unit].String(), l.Requests, more)
	}
}
