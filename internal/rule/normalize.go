package rule

import "net/netip"

// prefixes says to how many bits addresses are cut; the zero value changes nothing at all.
type prefixes struct {
	on         bool
	ipv4, ipv6 int
}

// nat64 is the well-known prefix of IPv4 addresses behind NAT64 (RFC 6052): all of IPv4 lies in one /96 of it.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// normalize returns the one spelling of an address, cut to its prefix: a mapped IPv4 address is IPv4, a zone is dropped, an address behind
// NAT64 keeps its IPv4 bits apart. Text that is no address is returned as it is. It allocates only if it returns another text, or for text that looks like
// an address and is none.
func (p prefixes) normalize(s string) string {
	if !p.on {
		return s
	}
	ip, ok := ParseAddress(s)
	if !ok {
		return s
	}
	bits := p.ipv6
	switch {
	case ip.Is4():
		bits = p.ipv4
	case nat64.Contains(ip):
		bits = max(p.ipv6, nat64.Bits()+p.ipv4)
	}
	var b [64]byte
	out := b[:0]
	if bits == ip.BitLen() {
		out = ip.AppendTo(out)
	} else {
		out = netip.PrefixFrom(ip, bits).Masked().AppendTo(out)
	}
	if string(out) == s {
		return s
	}
	return string(out)
}

// startsLikeAddress spares most text that is no address the error that netip would allocate.
func startsLikeAddress(s string) bool {
	for i := range min(len(s), 5) { // a group of IPv6 has at most 4 digits, a byte of IPv4 at most 3
		switch c := s[i]; {
		case c == '.', c == ':':
			return true
		case '0' <= c && c <= '9', 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
		default:
			return false
		}
	}
	return false
}
