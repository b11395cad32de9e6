package rule

import (
	"net/netip"

	"github.com/gaissmai/bart"
)

// networks finds the longest of many networks that an address lies in. The zero value holds none.
type networks[V any] struct{ table *bart.Table[V] }

func (n *networks[V]) insert(network netip.Prefix, v V) {
	if n.table == nil {
		n.table = new(bart.Table[V])
	}
	n.table.Insert(network, v)
}

// has reports whether the network itself is there, whatever others contain it.
func (n *networks[V]) has(network netip.Prefix) bool {
	if n.table == nil {
		return false
	}
	_, ok := n.table.Get(network)
	return ok
}

// find returns what was inserted with the longest network of an address, ok if there is one. Text that is no address lies in none.
func (n *networks[V]) find(s string) (v V, ok bool) {
	if n.table == nil {
		return v, false
	}
	ip, ok := ParseAddress(s)
	if !ok {
		return v, false
	}
	return n.table.Lookup(ip)
}

// ParseAddress reads the address that an entry's value is, in any spelling: a mapped IPv4 address is IPv4, a zone is dropped; ok tells that it is one. It allocates only for text that looks like an
// address and is none.
func ParseAddress(s string) (ip netip.Addr, ok bool) {
	if !startsLikeAddress(s) {
		return ip, false
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return ip, false
	}
	return ip.Unmap().WithZone(""), true
}
