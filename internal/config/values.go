package config

import "github.com/ratelimitd/ratelimitd/internal/rule"

// refreshed takes new values of lookups beside rules that are refused: the two change apart, and a customer's new plan does
// not wait until somebody's mistake in a rule file is mended. It reads the files through o, so that they are followed on.
func (l *Live) refreshed(u Update, before *rule.Snapshot, o rule.Options) {
	if before == nil || o.ReadValues == nil || u.Origin != l.good.Origin {
		return
	}
	var values valueFiles
	for _, name := range before.ValuesFiles() {
		data, err := o.ReadValues(name)
		if err != nil {
			l.log.Error("values cannot be read, the last good ones stay", "error", err)
			return
		}
		values = append(values, rule.File{Name: name, Data: data})
	}
	next, err := before.WithValues(values)
	if err != nil {
		for _, p := range rule.Mistakes(err) {
			l.log.Error("values refused, the last good ones stay", "problem", p)
		}
		return
	}
	if next.Hash() == before.Hash() {
		return
	}
	number := l.state.next(l.Status().Version, next.Hash())
	if err := l.state.save(l.good, values, number, next.Hash()); err != nil {
		l.log.Error("rules cannot be kept for the next start", "error", err)
	}
	l.current.Store(next)
	l.mu.Lock()
	l.status.Version, l.status.Hash = number, next.Hash()
	l.mu.Unlock()
	l.log.Info("new values beside the last good rules", "version", number, "hash", next.Hash())
	l.tell(Change{Origin: u.Origin, Version: l.good.Version, Before: before.Hash(), After: next.Hash()})
}
