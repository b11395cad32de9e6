package override

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/bucket"
	"github.com/ratelimitd/ratelimitd/internal/ledger"
	"github.com/ratelimitd/ratelimitd/internal/rule"
)

// Bounds of what an override may say.
const (
	MaxLife  = 31 * 24 * time.Hour // from its making to its end
	MaxCount = 1000                // overrides at a time

	maxText = 1024 // bytes of a text
)

// AddressKey is the key of the entry that a network is looked for in, unless an override names another.
const AddressKey = "remote_address"

// Action is what an override does.
type Action string

// The actions.
const (
	Limit  Action = "limit"  // other numbers for the same buckets: what was spent stays spent
	Exempt Action = "exempt" // the limit does not apply
	Block  Action = "block"  // the request is refused, with no state I/O
)

// Override is one exception. It meets the descriptors to which all of Domain, Rule and the entry apply that it names; it
// names a Rule or an entry, or both.
type Override struct {
	ID string `json:"id"` // follows from the target: a target has one override at a time

	Domain  string `json:"domain,omitempty"`  // "": every domain, or that of Rule
	Rule    string `json:"rule,omitempty"`    // the name of a limit, as check and the metrics print it: domain.name or domain.path
	Key     string `json:"key,omitempty"`     // of an entry
	Value   string `json:"value,omitempty"`   // of that entry, in full; or
	Network string `json:"network,omitempty"` // an address or CIDR in which that entry's value lies

	Action     Action `json:"action"`
	Requests   uint32 `json:"requests,omitempty"`   // of Limit: hits per unit, 1 or more
	Unit       string `json:"unit,omitempty"`       // of Limit: "second" …; "": the limit's own, and its multiplier
	Multiplier uint32 `json:"multiplier,omitempty"` // of Unit; 0 is 1
	Burst      int64  `json:"burst,omitempty"`      // of Limit; 0: Requests, or the limit's own where that is not its requests

	Author  string    `json:"author"`
	Reason  string    `json:"reason"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`

	network netip.Prefix
	unit    bucket.Unit
}

// Prepare fills in what follows from the rest, and checks all of it. The error lists everything that is wrong. Without
// an expiry, an author and a reason there is no override.
func (o *Override) Prepare(now time.Time) error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, args...))
	}
	for _, text := range [...]struct{ field, s string }{
		{"domain", o.Domain}, {"rule", o.Rule}, {"key", o.Key}, {"value", o.Value}, {"author", o.Author}, {"reason", o.Reason},
	} {
		if len(text.s) > maxText {
			wrong(text.field, "of %d bytes: want at most %d", len(text.s), maxText)
		}
		if !utf8.ValidString(text.s) {
			wrong(text.field, "%q: want UTF-8", text.s)
		}
	}
	if strings.TrimSpace(o.Author) == "" {
		wrong("author", "want who is responsible")
	}
	if strings.TrimSpace(o.Reason) == "" {
		wrong("reason", "want why this is done")
	}
	o.Created, o.Expires = now.UTC().Truncate(time.Second), o.Expires.UTC().Truncate(time.Second)
	switch {
	case o.Expires.Unix() <= 0:
		wrong("expires", "want when it ends")
	case !o.Expires.After(now):
		wrong("expires", "%s is past", o.Expires.Format(time.RFC3339))
	case o.Expires.Sub(now) > MaxLife:
		wrong("expires", "%s: want at most %d days from now", o.Expires.Format(time.RFC3339), MaxLife/(24*time.Hour))
	}
	if err := o.target(); err != nil {
		errs = append(errs, err)
	}
	if err := o.numbers(); err != nil {
		errs = append(errs, err)
	}
	o.ID = "o-" + ledger.Digest(strings.Join([]string{o.Domain, o.Rule, o.Key, o.Value, o.Network}, "\x00"))[:12]
	return errors.Join(errs...)
}

// target checks whom the override meets.
func (o *Override) target() error {
	switch {
	case o.Value != "" && o.Network != "":
		return errors.New("value and network: want one of them")
	case o.Value != "" && o.Key == "":
		return errors.New("key: want the key of the entry with that value")
	case o.Network != "" && o.Key == "":
		o.Key = AddressKey
	case o.Key != "" && o.Value == "" && o.Network == "":
		return errors.New("value: want the value of that entry, or a network")
	}
	if o.Rule == "" && o.Key == "" {
		return errors.New("rule: want the name of a limit, or an entry, or both")
	}
	if o.Network == "" {
		return nil
	}
	network, err := netip.ParsePrefix(o.Network)
	if err != nil {
		ip, err := netip.ParseAddr(o.Network)
		if err != nil {
			return fmt.Errorf("network: %q: want an address or a CIDR", o.Network)
		}
		network = netip.PrefixFrom(ip.WithZone(""), ip.BitLen())
	}
	if ip := network.Addr(); ip.Is4In6() && network.Bits() >= 96 {
		network = netip.PrefixFrom(ip.Unmap(), network.Bits()-96)
	}
	o.network = network.Masked()
	o.Network = o.network.String()
	return nil
}

// numbers checks what the override does.
func (o *Override) numbers() error {
	switch o.Action {
	case Exempt, Block:
		if o.Requests != 0 || o.Unit != "" || o.Multiplier != 0 || o.Burst != 0 {
			return fmt.Errorf("action %s: want no numbers with it", o.Action)
		}
		return nil
	case Limit:
	default:
		return fmt.Errorf("action: %q: want limit, exempt or block", o.Action)
	}
	switch {
	case o.Rule == "":
		return errors.New("rule: want the name of the limit that is to have other numbers")
	case o.Requests == 0:
		return errors.New("requests: want 1 or more; to refuse everything, block")
	case o.Burst < 0:
		return fmt.Errorf("burst: %d: want 1 or more", o.Burst)
	case o.Unit == "" && o.Multiplier > 1:
		return errors.New("unit: want one with a multiplier")
	}
	if o.Unit != "" {
		var err error
		if o.unit, err = bucket.ParseUnit(o.Unit); err != nil {
			return fmt.Errorf("unit: %w", err)
		}
	}
	// Whatever algorithm the limit has, its numbers must be such that can be kept.
	_, err := o.Over(bucket.Config{Hits: 1, Unit: bucket.Hour})
	return err
}

// Over returns the limit with the override's numbers in place of those of base.
func (o *Override) Over(base bucket.Config) (*bucket.Limit, error) {
	c := base
	if c.Burst == c.Hits {
		c.Burst = 0 // it follows the hits
	}
	c.Hits = int64(o.Requests)
	if o.unit != bucket.NoUnit {
		c.Unit, c.Multiplier = o.unit, int64(max(o.Multiplier, 1))
		if c.Unit < bucket.Day {
			c.Calendar = nil
		}
	}
	if o.Burst > 0 && c.Algorithm.Family() == bucket.Credit {
		c.Burst = o.Burst
	}
	return bucket.New(c)
}

// Meets reports whether one of the entries is the one that o names, or o names none. It allocates only for text that
// looks like an address and is none.
func (o *Override) Meets(entries []rule.Entry) bool {
	if o.Key == "" {
		return true
	}
	for i := range entries {
		e := &entries[i]
		if e.Key != o.Key {
			continue
		}
		if !o.network.IsValid() {
			if e.Value == o.Value {
				return true
			}
			continue
		}
		if ip, ok := rule.ParseAddress(e.Value); ok && o.network.Contains(ip) {
			return true
		}
	}
	return false
}

// Before reports whether o decides before p where both meet: who names a value before who names none, of networks the
// smaller one, who names a rule before who names none; of equals the newer one.
func (o *Override) Before(p *Override) bool {
	a, b := o.rank(), p.rank()
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	if !o.Created.Equal(p.Created) {
		return o.Created.After(p.Created)
	}
	return o.ID < p.ID
}

// rank is larger, number by number, for who decides first.
func (o *Override) rank() (r [4]int) {
	switch {
	case o.Value != "":
		r[0] = 2
	case o.Key != "":
		// IPv4 as it stands in IPv6, so that the two compare.
		r[0], r[1] = 1, o.network.Bits()+128-o.network.Addr().BitLen()
	}
	if o.Rule != "" {
		r[2] = 1
	}
	if o.Domain != "" {
		r[3] = 1
	}
	return r
}

// String says in a line what the override does, and to whom.
func (o *Override) String() string { return o.Effect() + " on " + o.Target() }

// Effect says what the override does.
func (o *Override) Effect() string {
	if o.Action != Limit {
		return string(o.Action)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", o.Action, o.Requests)
	if o.Unit != "" {
		b.WriteString("/")
		if o.Multiplier > 1 {
			fmt.Fprint(&b, o.Multiplier)
		}
		b.WriteString(o.Unit)
	}
	if o.Burst > 0 {
		fmt.Fprintf(&b, " burst %d", o.Burst)
	}
	return b.String()
}

// Target says whom the override meets.
func (o *Override) Target() string {
	var parts []string
	if o.Domain != "" {
		parts = append(parts, "domain "+o.Domain)
	}
	if o.Rule != "" {
		parts = append(parts, o.Rule)
	}
	switch {
	case o.Network != "":
		parts = append(parts, o.Key+" in "+o.Network)
	case o.Key != "":
		parts = append(parts, o.Key+"="+o.Value)
	}
	return strings.Join(parts, ", ")
}

// encode returns o as it is kept.
func (o *Override) encode() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // texts, numbers and times only
	}
	return string(text)
}

// decode reads what encode wrote, perhaps in another process of another version.
func decode(text string) (*Override, error) {
	o := new(Override)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		return nil, err
	}
	id, created := o.ID, o.Created
	if err := o.Prepare(created); err != nil {
		return nil, err
	}
	o.ID = id
	return o, nil
}
