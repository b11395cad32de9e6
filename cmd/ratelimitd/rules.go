package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// rulesFlags are the flags of the commands that look at rules without serving them.
type rulesFlags struct{ rules, profile string }

func (f *rulesFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.rules, "rules", "", "the rules: a `path` of a file, or of a directory of *.yaml, *.yml and *.json")
	f.addProfileTo(cmd)
}

func (f *rulesFlags) addProfileTo(cmd *cobra.Command) {
	choiceVar(cmd.Flags(), &f.profile, "default-profile", "whose answers files give that name no profile: ours, or the reference service's", "native", "envoy")
}

// load loads the rules of --rules and says on w what looks wrong in them.
func (f *rulesFlags) load(w io.Writer) (*rule.Snapshot, error) {
	if f.rules == "" {
		return nil, usagef("--rules: want a file or a directory of rules")
	}
	snapshot, warnings, err := loadRules([]string{f.rules}, f.profile)
	if err != nil {
		return nil, err
	}
	for _, warning := range warnings {
		writeLine(w, "%s", warning)
	}
	return snapshot, nil
}

// loadRules loads the files of all paths as one set.
func loadRules(paths []string, defaultProfile string) (*rule.Snapshot, []rule.Warning, error) {
	var files []rule.File
	for _, path := range paths {
		read, err := config.Read(path)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, read...)
	}
	return rule.Load(files, rule.Options{DefaultProfile: profile(defaultProfile), ReadValues: config.ReadFile})
}

// profile translates the words of --default-profile.
func profile(word string) rule.Profile {
	if word == "envoy" {
		return rule.Envoy
	}
	return rule.Native
}
