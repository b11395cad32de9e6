package app

import "log/slog"

// Secret is text that is never shown: formatted, logged or marshalled it reads [redacted]. Convert it to string to use
// it. The zero value is no secret.
type Secret string

const redacted = "[redacted]"

// String hides the secret.
func (s Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return redacted }

// LogValue hides the secret from slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret from JSON, YAML and whatever else writes text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
