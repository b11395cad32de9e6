package rule

// The lints, by their names.
const (
	LintIgnoredKey = "ignored-key" // a key that has no effect where it stands
)

// lint warns of what loads and is probably a mistake.
func (d *domainSpec) lint(*problems) {}
