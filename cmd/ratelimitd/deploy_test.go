package main

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/ratelimitd/ratelimitd/internal/app"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// manifest reads one of deploy/k8s, whose form its own tests look after.
func manifest(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "k8s", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// The rules of the ConfigMap load, and nothing in them looks like a mistake.
func TestDeployedRules(t *testing.T) {
	t.Parallel()
	var m struct {
		Data map[string]string `yaml:"data"`
	}
	manifest(t, "configmap.yaml", &m)
	var files []rule.File
	for _, name := range slices.Sorted(maps.Keys(m.Data)) {
		if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" && ext != ".json" {
			t.Errorf("%s would not be read", name)
		}
		files = append(files, rule.File{Name: name, Data: []byte(m.Data[name])})
	}
	rules, warnings, err := rule.Load(files, rule.Options{})
	if err != nil || len(warnings) > 0 || rules.Empty() {
		t.Errorf("got error %v and warnings %v, want rules without any", err, warnings)
	}
}

// The Deployment starts serve with flags that there are, where its volumes are, and a process of those options is made.
func TestDeployedFlags(t *testing.T) {
	t.Parallel()
	var m struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Command, Args []string
						VolumeMounts  []struct {
							MountPath string `yaml:"mountPath"`
						} `yaml:"volumeMounts"`
					}
				}
			}
		}
	}
	manifest(t, "deployment.yaml", &m)
	c := m.Spec.Template.Spec.Containers[0]
	if !slices.Equal(c.Command, []string{"/bin/ratelimitd", "serve"}) {
		t.Errorf("got command %q", c.Command)
	}
	cmd := serveCommand()
	if err := cmd.ParseFlags(c.Args); err != nil {
		t.Fatal(err)
	}
	var mounts []string
	for _, v := range c.VolumeMounts {
		mounts = append(mounts, v.MountPath)
	}
	for _, flag := range []string{"rules", "redis-url-file", "state-dir"} {
		path := cmd.Flags().Lookup(flag).Value.String()
		if !slices.Contains(mounts, path) && !slices.Contains(mounts, filepath.Dir(path)) {
			t.Errorf("--%s=%s: got volumes at %v only", flag, path, mounts)
		}
	}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(oneRule), 0o600); err != nil {
		t.Fatal(err)
	}
	remote, err := cmd.Flags().GetBool("admin-remote")
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(app.Options{
		Rules: rules, GRPCAddr: app.DefaultGRPCAddr, HTTPAddr: app.DefaultHTTPAddr,
		AdminAddr: cmd.Flags().Lookup("admin-addr").Value.String(), AdminRemote: remote,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
