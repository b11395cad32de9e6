package bucket

import (
	"fmt"
	"strings"
	"time"
)

// Unit is a period's unit, as rules and Envoy name it. The zero value is no unit.
type Unit uint8

// The units. Without a calendar a month is 30 days and a year 365, as in the reference service.
const (
	NoUnit Unit = iota
	Second
	Minute
	Hour
	Day
	Week
	Month
	Year
)

const day = 24 * time.Hour

// units is indexed by Unit.
var units = [...]struct {
	name   string
	length time.Duration
}{
	NoUnit: {"none", 0},
	Second: {"second", time.Second},
	Minute: {"minute", time.Minute},
	Hour:   {"hour", time.Hour},
	Day:    {"day", day},
	Week:   {"week", 7 * day},
	Month:  {"month", 30 * day},
	Year:   {"year", 365 * day},
}

// String returns the unit's name in lower case, such as "second"; "none" for NoUnit.
func (u Unit) String() string {
	if int(u) < len(units) {
		return units[u].name
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// Duration returns the unit's length off any calendar; 0 for NoUnit and unknown units.
func (u Unit) Duration() time.Duration {
	if int(u) < len(units) {
		return units[u].length
	}
	return 0
}

// ParseUnit returns the unit with the given name, in any case. NoUnit has no name to parse.
func ParseUnit(name string) (Unit, error) {
	for u := Second; u <= Year; u++ {
		if strings.EqualFold(units[u].name, name) {
			return u, nil
		}
	}
	return NoUnit, fmt.Errorf("unit %q: want second, minute, hour, day, week, month or year", name)
}
