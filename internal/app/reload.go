package app

import (
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Reload reads the rules again. If they are wrong, the last good ones stay and the log has every problem; /config and the
// metrics tell of it as well.
func (a *App) Reload() {
	err := a.files.Reload()
	if err == nil {
		return
	}
	list := problems(err)
	for _, p := range list {
		a.log.Error("rules refused", "problem", p)
	}
	st := a.files.Status()
	a.log.Error("reload failed, the last good rules stay", "path", st.Path, "problems", len(list),
		"version", st.Version, "hash", st.Hash)
}

// problems splits what a load said into single problems, each with its place.
func problems(err error) []string {
	if list, ok := errors.AsType[rule.Errors](err); ok {
		out := make([]string, len(list))
		for i, e := range list {
			out[i] = e.Error()
		}
		return out
	}
	return []string{err.Error()}
}
