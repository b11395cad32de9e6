package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"
)

// Where a setting came from is kept in its flag's annotations.
const (
	originKey       = "origin"
	originFlag      = "flag"
	originEnv       = "environment"
	originReference = "reference's environment"
	originFile      = "file"
)

// secretKey annotates a flag whose value may be a secret.
const secretKey = "secret"

// secrets says that the values of flags may be secrets: nothing that is said of one shows it. What the flag's type says of
// a value it does not take must not hold it either.
func secrets(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := flags.SetAnnotation(name, secretKey, nil); err != nil {
			panic(err) // there is no such flag
		}
	}
}

func isSecret(f *pflag.Flag) bool {
	_, ok := f.Annotations[secretKey]
	return ok
}

// badFlag is what is said of a flag of the command line that is wrong.
func badFlag(_ *cobra.Command, err error) error {
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok && isSecret(bad.GetFlag()) {
		return fmt.Errorf("--%s: %w", bad.GetFlag().Name, bad.Unwrap())
	}
	return err
}

// completeSettings gives every flag of cmd that the command line left out the value from the environment, else what more
// says, if it is not nil, else from the config file. The error lists every setting that is wrong and says where it was
// made.
func completeSettings(cmd *cobra.Command, lookup func(string) (string, bool), more func(*cobra.Command) []error) error {
	flags := cmd.Flags()
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			setOrigin(f, originFlag)
		}
	})
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		// An empty variable is one that is not set: charts and shells leave such behind.
		if value, _ := lookup(variable(f.Name)); value != "" && !f.Changed && f.Name != "help" {
			if err := set(f, value, originEnv); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", variable(f.Name), err))
			}
		}
	})
	if more != nil {
		errs = append(errs, more(cmd)...)
	}
	if path, _ := flags.GetString("config"); path != "" {
		errs = append(errs, completeFromFile(cmd, path))
	}
	return errors.Join(errs...)
}

// variable names the environment variable of a flag. A Service called ratelimitd makes Kubernetes set RATELIMITD_PORT,
// RATELIMITD_PORT_… and RATELIMITD_SERVICE_… in every pod: no flag may have such a name.
func variable(flag string) string {
	return "RATELIMITD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// set gives f a value as the command line would, but leaves it to the caller to say where the value stood.
func set(f *pflag.Flag, value, from string) error {
	if err := f.Value.Set(value); err != nil {
		if isSecret(f) {
			return err
		}
		return fmt.Errorf("%q: %w", value, err)
	}
	f.Changed = true
	setOrigin(f, from)
	return nil
}

func setOrigin(f *pflag.Flag, origin string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[originKey] = []string{origin}
}

// origin returns where a flag's value came from, "" for its default.
func origin(cmd *cobra.Command, flag string) string {
	if f := cmd.Flags().Lookup(flag); f != nil && f.Annotations[originKey] != nil {
		return f.Annotations[originKey][0]
	}
	return ""
}

// completeFromFile reads a mapping of flag names to values. A name that is a flag of another command is passed over, so
// that one file can serve several; any other unknown name is an error.
func completeFromFile(cmd *cobra.Command, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("--config: %s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil // an empty file
	}
	settings := doc.Content[0]
	if settings.Kind != yaml.MappingNode {
		return fmt.Errorf("--config: %s:%d: want a mapping of flag names to values", path, settings.Line)
	}
	var errs []error
	var seen []string
	for i := 0; i+1 < len(settings.Content); i += 2 {
		key, value := settings.Content[i], settings.Content[i+1]
		wrong := func(err error) {
			errs = append(errs, fmt.Errorf("--config: %s:%d:%d: %s: %w", path, key.Line, key.Column, key.Value, err))
		}
		f := cmd.Flags().Lookup(key.Value)
		switch {
		case slices.Contains(seen, key.Value):
			wrong(errors.New("given twice"))
		case key.Value == "config" || key.Value == "help" || !knownFlag(cmd.Root(), key.Value):
			wrong(errors.New("no such setting"))
		case value.Kind != yaml.ScalarNode:
			wrong(errors.New("want one value"))
		case f != nil && !f.Changed:
			if err := set(f, value.Value, originFile); err != nil {
				wrong(err)
			}
		}
		seen = append(seen, key.Value)
	}
	return errors.Join(errs...)
}

// kubernetes matches the variables that a Service whose name begins with ratelimitd makes, less their prefix.
var kubernetes = regexp.MustCompile(`(^|_)(PORT|SERVICE)(_|$)`)

// strangers returns the names of variables that look like settings and set nothing: a typo, or a setting of another
// release.
func strangers(root *cobra.Command, environ []string) []string {
	var names []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		rest, ours := strings.CutPrefix(name, "RATELIMITD_")
		if !ours || kubernetes.MatchString(rest) {
			continue
		}
		if !knownFlag(root, strings.ToLower(strings.ReplaceAll(rest, "_", "-"))) {
			names = append(names, name)
		}
	}
	return names
}

func knownFlag(cmd *cobra.Command, name string) bool {
	if cmd.Flags().Lookup(name) != nil {
		return true
	}
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return knownFlag(c, name) })
}

// choice is a flag whose value is one of a few words.
type choice struct {
	value *string
	words []string
}

// choiceVar adds such a flag; its first word is the default.
func choiceVar(flags *pflag.FlagSet, value *string, name, usage string, words ...string) {
	*value = words[0]
	flags.Var(&choice{value, words}, name, usage)
}

func (c *choice) String() string { return *c.value }
func (c *choice) Type() string   { return strings.Join(c.words, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("want one of %s", strings.Join(c.words, ", "))
	}
	*c.value = s
	return nil
}
