package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/app"
)

// version is set when a release is linked: -ldflags "-X main.version=1.2.3".
var version string

// build says which program this is: a release's version or the module's, and the commit if the toolchain knew it.
func build() app.Build {
	b := app.Build{Version: version, Revision: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func versionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which build this is",
		Long:  "Print the version, the commit it was built from and the Go release that built it.",
		Example: `  ratelimitd version
  ratelimitd version -o json`,
		Args: cobra.NoArgs,
		RunE: runs(func(cmd *cobra.Command, _ []string) error {
			b := build()
			v := struct {
				Version   string `json:"version"`
				Revision  string `json:"revision"`
				GoVersion string `json:"goversion"`
			}{b.Version, b.Revision, runtime.Version()}
			return out.print(cmd.OutOrStdout(), v, func(w io.Writer) {
				fmt.Fprintf(w, "ratelimitd %s (revision %s, %s)\n", v.Version, v.Revision, v.GoVersion)
			})
		}),
	}
	out.addTo(cmd)
	return cmd
}
