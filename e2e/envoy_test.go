package e2e_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
)

//go:embed testdata/envoy.yaml.tmpl
var envoyTemplate string

// An envoySetup fills testdata/envoy.yaml.tmpl. Routes and Filter are YAML; services are addresses of ratelimitd's gRPC port.
type envoySetup struct {
	Domain   string
	Services []string
	Upstream string
	Routes   string // the virtual host's routes
	Filter   string // more fields of the rate limit filter
}

// An envoy is a running Envoy with one listener.
type envoy struct {
	*process
	addr  string // of its listener
	admin string
}

func newEnvoy(t *testing.T, setup envoySetup) *envoy {
	t.Helper()
	hostPort := func(addr string) (map[string]string, error) {
		host, port, err := net.SplitHostPort(addr)
		return map[string]string{"Host": host, "Port": port}, err
	}
	indent := func(n int, text string) string {
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", n))
	}
	tmpl := template.Must(template.New("envoy").Funcs(template.FuncMap{"hostPort": hostPort, "indent": indent}).Parse(envoyTemplate))
	var config strings.Builder
	if err := tmpl.Execute(&config, setup); err != nil {
		t.Fatal(err)
	}
	return startEnvoy(t, config.String())
}

// startEnvoy starts Envoy on a configuration whose admin and listener ports are 0, and waits until it listens.
func startEnvoy(t *testing.T, config string) *envoy {
	t.Helper()
	dir := t.TempDir()
	configPath, adminPath := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(configPath, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &envoy{process: start(t, envoyBinary(t), "--config-path", configPath, "--admin-address-path", adminPath,
		"--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")}
	e.eventually(t, "Envoy writes the address of its admin port", func() bool {
		addr, err := os.ReadFile(adminPath)
		e.admin = string(addr)
		return err == nil && len(addr) > 0
	})
	e.eventually(t, "Envoy is ready", func() bool {
		answer, err := http.Get("http://" + e.admin + "/ready")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})

	var listeners struct {
		Statuses []struct {
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(e.ask(t, "/listeners?format=json")), &listeners); err != nil {
		t.Fatal(err)
	}
	if len(listeners.Statuses) != 1 {
		t.Fatalf("got %d listeners, want 1", len(listeners.Statuses))
	}
	socket := listeners.Statuses[0].Address.Socket
	e.addr = net.JoinHostPort(socket.Address, strconv.Itoa(socket.Port))
	return e
}

// ask returns the answer of Envoy's admin port.
func (e *envoy) ask(t *testing.T, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + e.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// stat returns a counter or gauge of Envoy by its full name; 0 if Envoy has not made it yet.
func (e *envoy) stat(t *testing.T, name string) int {
	t.Helper()
	for line := range strings.Lines(e.ask(t, "/stats?usedonly&filter="+"^"+name+"$")) {
		_, number, ok := strings.Cut(strings.TrimSpace(line), ": ")
		value, err := strconv.Atoi(number)
		if !ok || err != nil {
			t.Fatalf("stat line %q", line)
		}
		return value
	}
	return 0
}

// healthy returns how many of ratelimitd's addresses Envoy sends calls to.
func (e *envoy) healthy(t *testing.T) int {
	t.Helper()
	return e.stat(t, "cluster.ratelimitd.membership_healthy")
}

// envoyBinary finds Envoy as RATELIMITD_ENVOY says, else where `make tools` puts it.
func envoyBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("RATELIMITD_ENVOY"); path != "" {
		return path
	}
	out, err := exec.Command("../scripts/tools.sh", "--envoy").CombinedOutput()
	if err != nil {
		t.Fatalf("no Envoy: run `make tools`, or set RATELIMITD_ENVOY to its path: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// answered is what a client got from Envoy.
type answered struct {
	code   int
	header http.Header
	body   string
}

// get sends one request through Envoy. Headers are "name: value"; values may be any bytes that HTTP lets through.
func (e *envoy) get(t *testing.T, path string, headers ...string) answered {
	t.Helper()
	a, err := fetch("http://"+e.addr+path, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantCodes sends equal requests, one for each status code that is wanted.
func (e *envoy) wantCodes(t *testing.T, want []int, path string, headers ...string) {
	t.Helper()
	if got := e.codes(t, len(want), path, headers...); !slices.Equal(got, want) {
		t.Errorf("%s %q: got %v, want %v", path, headers, got, want)
	}
}

// codes sends n equal requests and returns their status codes.
func (e *envoy) codes(t *testing.T, n int, path string, headers ...string) []int {
	t.Helper()
	var codes []int
	for range n {
		codes = append(codes, e.get(t, path, headers...).code)
	}
	return codes
}

func fetch(url string, headers ...string) (answered, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return answered{}, err
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ": ")
		if !ok {
			return answered{}, fmt.Errorf("header %q: want name: value", h)
		}
		request.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answered{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answered{response.StatusCode, response.Header, string(body)}, err
}
