package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

func checkCommand() *cobra.Command {
	var f rulesFlags
	var out output
	cmd := &cobra.Command{
		Use:   "check PATH…",
		Short: "Check rules, and print what each limit will do",
		Long: `Load rules as serve would, from files and directories together, and print every
limit with what holds for it in the end: its algorithm, profile, burst and failure
mode, defaults included. NAME is what override set --rule and the audit log call it:
DOMAIN.NAME, or DOMAIN.PATH of a limit without a name.

Every error is printed as file:line:col: path: message, all of them at once, and ends
the command with 1. What loads but looks like a mistake is printed the same way, with
the name of the finding, and ends it with 3.`,
		Example: `  ratelimitd check examples/rules
  ratelimitd check base.yaml extra.yaml

  # In a pipeline: the limits that let everything through while Redis is away
  ratelimitd check examples/rules -o json | jq '.limits[] | select(.on_backend_failure == "fail_open")'

  # Files of the reference service, answered as it does
  ratelimitd check --default-profile envoy /data/ratelimit/config`,
		Args: cobra.MinimumNArgs(1),
		RunE: runs(func(cmd *cobra.Command, args []string) error {
			return check(cmd, args, f.profile, &out)
		}),
	}
	f.addProfileTo(cmd)
	out.addTo(cmd)
	return cmd
}

// checked is what check prints.
type checked struct {
	OK       bool      `json:"ok"`
	Errors   []finding `json:"errors"`
	Warnings []finding `json:"warnings"`
	Limits   []limit   `json:"limits"`
}

type finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Col     int    `json:"col,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// limit is one line of the table: a limit, or a rule that has none.
type limit struct {
	Domain    string `json:"domain"`
	Rule      string `json:"rule"`
	Name      string `json:"name,omitempty"`
	FullName  string `json:"full_name,omitempty"` // what override set --rule calls it
	Limit     string `json:"limit"`               // 100/minute, 100/5minute, "unlimited", or "none"
	Algorithm string `json:"algorithm,omitempty"`
	Profile   string `json:"profile"`
	Burst     int64  `json:"burst,omitempty"`
	Debt      int64  `json:"debt,omitempty"`
	Period    string `json:"period,omitempty"`
	MaxDelay  string `json:"max_delay,omitempty"`
	Calendar  string `json:"calendar,omitempty"`
	OnFailure string `json:"on_backend_failure,omitempty"`
	Fraction  string `json:"local_fraction,omitempty"` // under local_strict, if not the default
	Scope     string `json:"scope,omitempty"`          // "node", or "" if shared
	Mode      string `json:"mode"`                     // enforce, shadow, or quota
	File      string `json:"file"`
	Line      int    `json:"line"`
}

func check(cmd *cobra.Command, paths []string, defaultProfile string, out *output) error {
	snapshot, warnings, err := loadRules(paths, defaultProfile)
	c := checked{OK: err == nil, Errors: findings(err), Warnings: []finding{}, Limits: []limit{}}
	for _, w := range warnings {
		c.Warnings = append(c.Warnings, finding{w.File, w.Line, w.Col, w.Path, w.Msg, w.Code, w.Hint})
	}
	if err == nil {
		c.Limits = limits(snapshot)
	}
	printed := out.print(cmd.OutOrStdout(), c, func(w io.Writer) {
		talk := cmd.ErrOrStderr()
		if err != nil {
			writeLines(talk, err.Error())
		}
		for _, warning := range warnings {
			writeLine(talk, "%s", warning)
		}
		if err == nil {
			limitTable(w, c.Limits)
		}
	})
	switch {
	case printed != nil:
		return printed
	case err != nil:
		return &exitError{code: exitFailure}
	case len(warnings) > 0:
		return &exitError{code: exitFindings}
	}
	return nil
}

// findings lists what Load, or reading the files, said.
func findings(err error) []finding {
	list := []finding{}
	var all rule.Errors
	switch {
	case err == nil:
	case errors.As(err, &all):
		for _, e := range all {
			list = append(list, finding{File: e.File, Line: e.Line, Col: e.Col, Path: e.Path, Message: e.Msg})
		}
	default:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			list = append(list, finding{Message: line})
		}
	}
	return list
}

// limits lists what a request can reach, in the order of domains and files.
func limits(s *rule.Snapshot) []limit {
	list := []limit{}
	for _, d := range s.Domains() {
		for _, r := range d.Rules() {
			row := limit{Domain: d.Name, Rule: r.Path, Name: r.Name, Profile: d.Profile.String(), Mode: "enforce", File: r.File, Line: r.Line}
			switch {
			case r.Shadow:
				row.Mode = "shadow"
			case r.Quota:
				row.Mode = "quota"
			}
			if len(r.Limits) == 0 {
				row.Limit = "none"
				if r.Unlimited {
					row.Limit = "unlimited"
				}
				list = append(list, row)
			}
			for _, l := range r.Limits {
				list = append(list, row.with(l))
			}
		}
	}
	return list
}

// with adds what a limit says to what its rule says.
func (row limit) with(l *rule.Limit) limit {
	c := l.Bucket.Config()
	row.Name, row.FullName = l.Name, l.Policy.Rule
	row.Limit = rate(l)
	row.Algorithm = c.Algorithm.String()
	row.Burst = c.Burst
	row.Debt = c.Debt
	row.Period = l.Bucket.Period().String()
	row.OnFailure = l.Policy.OnFailure.String()
	if l.Policy.LocalFraction > 0 && l.Policy.OnFailure == bucket.LocalStrict {
		row.Fraction = strconv.FormatFloat(float64(l.Policy.LocalFraction)/1e6, 'f', -1, 64)
	}
	if l.Policy.NodeScope {
		row.Scope = "node"
	}
	if c.MaxDelay > 0 {
		row.MaxDelay = c.MaxDelay.String()
	}
	if c.Calendar != nil {
		row.Calendar = c.Calendar.String()
		row.Period = "calendar " + c.Unit.String()
	}
	return row
}

// rate writes a limit's numbers: 100/minute, 300/5minute.
func rate(l *rule.Limit) string {
	multiplier := ""
	if l.Multiplier > 1 {
		multiplier = strconv.FormatUint(uint64(l.Multiplier), 10)
	}
	return fmt.Sprintf("%d/%s%s", l.Requests, multiplier, l.Unit)
}

func limitTable(w io.Writer, list []limit) {
	lines := [][]string{{"RULE", "LIMIT", "NAME", "ALGORITHM", "BURST", "PERIOD", "ON FAILURE", "PROFILE", "MODE", "AT"}}
	for _, l := range list {
		failure := l.OnFailure
		if l.Fraction != "" {
			failure += " " + l.Fraction
		}
		if l.Scope != "" {
			failure += ", scope " + l.Scope
		}
		lines = append(lines, []string{
			l.Domain + "." + l.Rule, l.Limit, dash(l.FullName), dash(l.Algorithm), dash(l.room()), dash(l.Period), dash(failure),
			l.Profile, l.Mode, fmt.Sprintf("%s:%d", l.File, l.Line),
		})
	}
	columns(w, lines)
}

// room says how far a limit goes beyond its rate: "20 debt 5". Windows and logs have no burst.
func (row *limit) room() string {
	var words []string
	switch row.Algorithm {
	case "", bucket.FixedWindow.String(), bucket.SlidingWindow.String(), bucket.SlidingLog.String():
	default:
		words = append(words, strconv.FormatInt(row.Burst, 10))
	}
	if row.Debt > 0 {
		words = append(words, "debt "+strconv.FormatInt(row.Debt, 10))
	}
	if row.MaxDelay != "" {
		words = append(words, "queue "+row.MaxDelay)
	}
	return strings.Join(words, " ")
}

// dash shows that a cell is empty on purpose.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
