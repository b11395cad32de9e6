package store

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

const secret = "a secret of more than 16 bytes"

func newKeyer(t testing.TB, secret string) *Keyer {
	t.Helper()
	k, err := NewKeyer([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// canonical is the message as the documentation describes it.
func canonical(identity string, values []string) []byte {
	msg := binary.AppendUvarint(nil, uint64(len(identity)))
	msg = append(msg, identity...)
	for _, v := range values {
		msg = binary.AppendUvarint(msg, uint64(len(v)))
		msg = append(msg, v...)
	}
	return msg
}

func TestKeyIsHMAC(t *testing.T) {
	t.Parallel()
	secrets := []string{secret, strings.Repeat("s", 16), strings.Repeat("k", 64), strings.Repeat("long", 50)}
	for _, secret := range secrets {
		k := newKeyer(t, secret)
		for n := range 200 { // every place a block can end
			for _, values := range [][]string{nil, {""}, {strings.Repeat("v", n)}, {"a", strings.Repeat("w", 3*n), "", "b"}} {
				identity := strings.Repeat("i", n)
				mac := hmac.New(sha256.New, []byte(secret))
				mac.Write(canonical(identity, values))
				want := Key(mac.Sum(nil)[:16])
				want[0] &= 0x7f
				if got := k.Key(identity, values); got != want {
					t.Fatalf("key of %q %q: got %x, want %x", identity, values, got, want)
				}
			}
		}
	}
}

func TestKeyString(t *testing.T) {
	t.Parallel()
	key := Key{0xfb, 0xff, 0xfe, 15: 1}
	const want = "rl1:{-__-}AAAAAAAAAAAAAAAAAQ"
	if got := key.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(want) != KeyLen {
		t.Errorf("KeyLen: got %d, want %d", KeyLen, len(want))
	}
	if got := string(key.Append([]byte("x"))); got != "x"+want {
		t.Errorf("append: got %q, want %q", got, "x"+want)
	}
}

func TestShortSecret(t *testing.T) {
	t.Parallel()
	_, err := NewKeyer([]byte("fifteen bytes.."))
	const want = "key secret of 15 bytes: must be at least 16"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestLearn(t *testing.T) {
	t.Parallel()
	var k, other Keyer
	early := k.Key("limit", nil)
	if !early.Provisional() || early == k.Key("limit", []string{""}) {
		t.Errorf("before a secret: got %v, want a provisional key of its own", early)
	}
	if got := other.Key("limit", nil); got != early {
		t.Errorf("before a secret, another keyer: got %v, want %v", got, early)
	}
	for _, secret := range []string{secret, "the next secret of 16 or more"} {
		if err := k.Learn([]byte(secret)); err != nil {
			t.Fatal(err)
		}
		want := newKeyer(t, secret).Key("limit", nil)
		if got := k.Key("limit", nil); got != want || got.Provisional() {
			t.Errorf("after Learn(%q): got %v, want %v", secret, got, want)
		}
		if err := k.Learn(nil); err == nil {
			t.Error("no secret: got no error, want one")
		}
		if got := k.Key("limit", nil); got != want {
			t.Errorf("after a secret that was refused: got %v, want %v", got, want)
		}
	}
}

// TestC30DistinctRequestsDistinctKeys draws tuples from bytes that separators are made of, and moves bytes between
// neighbours: whatever a caller writes, it stays in its own bucket.
func TestC30DistinctRequestsDistinctKeys(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{
		"", "_", ":", "|", "{", "}", "{}", "\x00", "\n", "\r\n", "a", "b", "user", "a_user_b", "\xff\xfe", "1", ".", "/",
		strings.Repeat("x", 127), strings.Repeat("x", 128), // where the length takes a second byte
	}
	draw := func() string {
		var s strings.Builder
		for range r.IntN(4) {
			s.WriteString(pieces[r.IntN(len(pieces))])
		}
		return s.String()
	}
	k := newKeyer(t, secret)
	// A tuple is remembered by a hash of its own, over quoted text: two tuples that share even that are taken for one.
	seen := make(map[Key]uint64, 1<<20)
	hash := maphash.MakeSeed()
	var text []byte
	add := func(identity string, values []string) {
		text = strconv.AppendQuote(text[:0], identity)
		for _, v := range values {
			text = strconv.AppendQuote(text, v)
		}
		tuple := maphash.Bytes(hash, text)
		key := k.Key(identity, values)
		if other, ok := seen[key]; ok && other != tuple {
			t.Fatalf("%s has the key of another tuple, %v", text, key)
		}
		seen[key] = tuple
	}
	for len(seen) < tuples {
		identity := draw()
		values := make([]string, 1+r.IntN(4))
		for i := range values {
			values[i] = draw()
		}
		add(identity, values)
		// The same bytes, cut elsewhere.
		i := r.IntN(len(values))
		switch v := values[i]; {
		case v == "":
			add(identity, append(values[:i:i], values[i+1:]...))
		case i == 0:
			cut := r.IntN(len(v) + 1)
			add(identity+v[:cut], append([]string{v[cut:]}, values[1:]...))
		default:
			cut := r.IntN(len(v) + 1)
			moved := append([]string(nil), values...)
			moved[i-1], moved[i] = moved[i-1]+v[:cut], v[cut:]
			add(identity, moved)
		}
	}
}

func TestAnotherSecretAnotherKey(t *testing.T) {
	t.Parallel()
	a, b := newKeyer(t, secret), newKeyer(t, secret+".")
	for _, v := range []string{"", "a", "{slot}"} {
		if a.Key("limit", []string{v}) == b.Key("limit", []string{v}) {
			t.Errorf("value %q: the same key under two secrets", v)
		}
	}
}

// TestPartitioned checks that keys of one partition have one tag, and nothing else in common.
func TestPartitioned(t *testing.T) {
	t.Parallel()
	tag := func(k Key) string { return k.String()[:len("rl1:{tttt}")] }
	learnt := newKeyer(t, secret)
	for name, k := range map[string]*Keyer{"learnt": learnt, "provisional": new(Keyer)} {
		acme := map[Key]bool{}
		for i := range 1000 {
			plain := k.Key("limit", []string{strconv.Itoa(i)})
			key := k.Partitioned("limit", []string{strconv.Itoa(i)}, "shop account", "acme")
			acme[key] = true
			if key.Provisional() != plain.Provisional() {
				t.Fatalf("%s: got provisional %v, want %v", name, key.Provisional(), plain.Provisional())
			}
			if [13]byte(key[3:]) != [13]byte(plain[3:]) {
				t.Fatalf("%s: a partition changes more than the tag: %v and %v", name, key, plain)
			}
			if want := tag(k.Partitioned("another limit", nil, "shop account", "acme")); tag(key) != want {
				t.Fatalf("%s: got tag %s, want that of the partition, %s", name, tag(key), want)
			}
		}
		if len(acme) != 1000 {
			t.Errorf("%s: got %d keys of 1,000 tuples", name, len(acme))
		}
		for _, other := range []Key{
			k.Partitioned("limit", []string{"0"}, "shop account", "zeta"), k.Partitioned("limit", []string{"0"}, "shop plan", "acme"), k.Key("limit", []string{"0"}),
		} {
			if tag(other) == tag(k.Partitioned("limit", []string{"0"}, "shop account", "acme")) {
				t.Errorf("%s: %v has the tag of another partition", name, other)
			}
		}
	}
}

func TestKeyerPrintsNoSecret(t *testing.T) {
	t.Parallel()
	k := newKeyer(t, secret)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(verb, k); got != "store.Keyer" {
			t.Errorf("%s: got %q, want %q", verb, got, "store.Keyer")
		}
	}
}

func TestKeyDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		return // make test runs this without it, too
	}
	k := newKeyer(t, secret)
	values := []string{"tenant", "user", strings.Repeat("long", 2000)}
	var key Key
	if n := testing.AllocsPerRun(100, func() { key = k.Key("identity of the limit", values) }); n != 0 {
		t.Errorf("got %v allocations a key, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { key = k.Partitioned("identity of the limit", values, "shop account", values[0]) }); n != 0 {
		t.Errorf("got %v allocations a key of a partition, want 0", n)
	}
	_ = key
}

func BenchmarkKey(b *testing.B) {
	k := newKeyer(b, secret)
	values := []string{"203.0.113.7", "/api/v1/things"}
	b.ReportAllocs()
	for b.Loop() {
		k.Key("\x04shop\x0eremote_address.path\x08minute×1\x06credit", values)
	}
}
