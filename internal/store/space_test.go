package store_test

import (
	"bytes"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/store"
)

func TestSpaced(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef")
	if got := store.Spaced(secret, ""); !bytes.Equal(got, secret) {
		t.Errorf("no space: got %x, want the secret itself", got)
	}
	key := func(secret []byte, space string) string {
		t.Helper()
		k, err := store.NewKeyer(store.Spaced(secret, space))
		if err != nil {
			t.Fatal(err)
		}
		return k.Key("identity", []string{"value"}).String()
	}
	seen := map[string]string{}
	for _, space := range []string{"", "a", "b", "ab", "key space"} {
		k := key(secret, space)
		if other, taken := seen[k]; taken {
			t.Errorf("spaces %q and %q: got the same key", space, other)
		}
		seen[k] = space
		if k != key(secret, space) {
			t.Errorf("space %q: got two keys", space)
		}
		if space != "" && k == key([]byte("fedcba9876543210"), space) {
			t.Errorf("space %q: got the same key under another secret", space)
		}
	}
}
