package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretIsNeverShown(t *testing.T) {
	t.Parallel()
	const canary = "hunter2"
	s := Secret(canary)
	o := Options{RedisURL: s}
	var out bytes.Buffer
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q"} {
		fmt.Fprintf(&out, verb+verb, s, o)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("secret", "secret", s, "options", o)
	slog.New(slog.NewTextHandler(&out, nil)).Info("secret", "secret", s, "options", o)
	if err := json.NewEncoder(&out).Encode(map[string]any{"s": s, "url": o.RedisURL}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("the secret is shown:\n%s", out.String())
	}
	if !strings.Contains(out.String(), redacted) {
		t.Errorf("nothing is redacted:\n%s", out.String())
	}
}
