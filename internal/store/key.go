package store

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"
)

// Key names one bucket in every store: 127 bits of a keyed hash over a limit's identity and a request's values, so that
// no two requests collide and nobody steers a slot, and one bit that tells provisional keys. See Keyer.
type Key [16]byte

// provisional is the bit of a key's first byte that is set while the deployment's secret is not known.
const provisional = 0x80

// Provisional reports whether k was derived before its keyer knew the deployment's secret. It names a bucket of this
// process only: a store that shares its buckets answers Unavailable for it.
func (k Key) Provisional() bool { return k[0]&provisional != 0 }

const (
	// keyPrefix tells our keys from others in a shared Redis, and this layout of key and state from a later one.
	keyPrefix = "rl1:"
	// tagBytes of a key are its tag, which alone decides its slot in a Redis Cluster.
	tagBytes = 3
	// minSecret is the least length of a secret in bytes: as strong as the key cut from the hash.
	minSecret = 16
)

// KeyLen is the length in bytes of a key as Redis sees it: "rl1:" and 22 characters of base64url, four of them in braces.
const KeyLen = len(keyPrefix) + 22 + len("{}")

// String returns the key as Redis sees it: "rl1:" and 22 characters of unpadded base64url, the first four of which stand
// in braces, together KeyLen bytes. A cluster's slot is a hash of those four: of a partition's (see Partitioned), else
// of 23 bits that are as good as random.
func (k Key) String() string { return string(k.Append(make([]byte, 0, KeyLen))) }

// Append appends what String returns to dst.
func (k Key) Append(dst []byte) []byte {
	dst = append(append(dst, keyPrefix...), '{')
	dst = base64.RawURLEncoding.AppendEncode(dst, k[:tagBytes])
	return base64.RawURLEncoding.AppendEncode(append(dst, '}'), k[tagBytes:])
}

// Keyer derives keys under a deployment's secret. The zero value knows no secret yet: its keys are provisional, under a
// random secret of this process, until Learn tells it one. Safe for concurrent use; it prints nothing of its secret.
type Keyer struct{ deriver atomic.Pointer[deriver] }

// deriver derives keys under one secret.
type deriver struct {
	macs sync.Pool // of *mac
	mark byte      // provisional, if only this process has the secret
}

// mac is HMAC-SHA256 under a secret, reused since it then knows what the hashes of the two padded keys come to.
type mac struct {
	hash.Hash
	msg [4 * sha256.BlockSize]byte
	sum [sha256.Size]byte
}

func newDeriver(key []byte, mark byte) *deriver {
	key = bytes.Clone(key)
	return &deriver{mark: mark, macs: sync.Pool{New: func() any { return &mac{Hash: hmac.New(sha256.New, key)} }}}
}

// NewKeyer returns a keyer that has learnt secret. The error is Learn's.
func NewKeyer(secret []byte) (*Keyer, error) {
	k := new(Keyer)
	if err := k.Learn(secret); err != nil {
		return nil, err
	}
	return k, nil
}

// Learn makes secret the one that keys are derived under from now on. It is 16 bytes or more, the same on every node;
// another secret is another set of buckets. The slice is not kept. The error says how short the secret is, and then
// nothing has changed.
func (k *Keyer) Learn(secret []byte) error {
	if len(secret) < minSecret {
		return fmt.Errorf("key secret of %d bytes: must be at least %d", len(secret), minSecret)
	}
	k.deriver.Store(newDeriver(secret, 0))
	return nil
}

// own derives keys under a secret that this process alone has.
var own = sync.OnceValue(func() *deriver {
	var key [sha256.Size]byte
	_, _ = rand.Read(key[:]) // never errs
	return newDeriver(key[:], provisional)
})

// Key returns the key of the limit with the given identity for these values: HMAC-SHA256 over the identity and each value
// in order, each preceded by its length as an unsigned varint, cut to 128 bits of which the first says whether the key is
// provisional. Bytes are taken as they are, of any length. It does not allocate, save now and then after a garbage collection.
func (k *Keyer) Key(identity string, values []string) Key { return k.current().key(identity, values) }

// Partitioned is Key in the slot of a partition: the tags of all keys with the same partition and value are the same, so
// that a Redis Cluster keeps them in one slot, whatever limits and values they are of. The other 104 bits tell them
// apart. It allocates as little as Key.
func (k *Keyer) Partitioned(identity string, values []string, partition, value string) Key {
	d := k.current() // once: a secret learnt in between must not make half a key
	key, tag := d.key(identity, values), d.key(partition, []string{value})
	copy(key[:tagBytes], tag[:tagBytes])
	return key
}

// current returns the deriver of the secret learnt last, else that of this process.
func (k *Keyer) current() *deriver {
	if d := k.deriver.Load(); d != nil {
		return d
	}
	return own()
}

// key is Keyer.Key under one secret.
func (d *deriver) key(identity string, values []string) Key {
	m := d.macs.Get().(*mac)
	defer d.macs.Put(m)
	m.Reset()
	n := 0
	// One loop over identity and values, gathered into many blocks: the hash is cheap, a call of it is not.
	for i := -1; i < len(values); i++ {
		text := identity
		if i >= 0 {
			text = values[i]
		}
		if n+binary.MaxVarintLen64 > len(m.msg) {
			_, _ = m.Write(m.msg[:n]) // a hash never errs
			n = 0
		}
		n += binary.PutUvarint(m.msg[n:], uint64(len(text)))
		for {
			c := copy(m.msg[n:], text)
			n, text = n+c, text[c:]
			if text == "" {
				break
			}
			_, _ = m.Write(m.msg[:n])
			n = 0
		}
	}
	_, _ = m.Write(m.msg[:n])
	key := Key(m.Sum(m.sum[:0])[:len(Key{})])
	key[0] = key[0]&^provisional | d.mark
	return key
}

// Format writes a name in place of the secret, whatever the verb.
func (*Keyer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "store.Keyer") }
