package rule

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMistakes(t *testing.T) {
	t.Parallel()
	two := Errors{
		{File: "a.yaml", Line: 1, Col: 2, Path: "domain", Msg: "missing"},
		{File: "b.yaml", Line: 3, Col: 4, Msg: "empty"},
	}
	texts := []string{"a.yaml:1:2: domain: missing", "b.yaml:3:4: empty"}
	for name, tt := range map[string]struct {
		err  error
		want []string
	}{
		"none":    {nil, nil},
		"two":     {two, texts},
		"wrapped": {fmt.Errorf("version 7: %w", two), texts},
		"other":   {errors.New("a\nb"), []string{"a\nb"}},
	} {
		if diff := cmp.Diff(tt.want, Mistakes(tt.err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
