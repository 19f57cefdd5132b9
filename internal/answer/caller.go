package answer

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// secretBytes is how many bytes of a secret's hash identify it. It takes about 2^64 secrets before two probably share
// an ID.
const secretBytes = 16

// SecretID returns the entity of a secret: key- and 32 hexadecimal digits of its SHA-256.
func SecretID(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	var room [len("key-") + 2*secretBytes]byte
	return string(hex.AppendEncode(append(room[:0], "key-"...), sum[:secretBytes]))
}

// Bearer returns the token of an Authorization field. The scheme may be written in any case.
func Bearer(field string) (token string, ok bool) {
	scheme, token, _ := strings.Cut(field, " ")
	token = strings.Trim(token, " \t")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// AddrID returns the entity of an address: ip- and an IPv4 address, or the /64 of an IPv6 address, because a single
// customer has at least that much.
func AddrID(addr netip.Addr) string {
	var room [len("ip-2001:0db8:ffff:ffff:ffff:ffff:ffff:ffff/64")]byte
	b := append(room[:0], "ip-"...)
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return string(addr.AppendTo(b))
	}
	net, _ := addr.Prefix(64) // valid for every IPv6 address
	return string(net.AppendTo(b))
}

// Trusted normalizes the networks of trusted proxies to unmapped addresses.
func Trusted(nets []netip.Prefix) []netip.Prefix {
	trusted := make([]netip.Prefix, 0, len(nets))
	for _, n := range nets {
		if n.Addr().Is4In6() && n.Bits() >= 96 {
			n = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
		if n.IsValid() {
			trusted = append(trusted, n.Masked())
		}
	}
	return trusted
}

// Client returns the address that a request comes from. This is the peer's address or, if that is a trusted proxy,
// the last address in the X-Forwarded-For fields that is not one; everything before it was written by untrusted
// parties. If a proxy wrote something other than an address, the client is unknown and gets the address of that
// proxy. ok is false if the peer has no IP address, as on a Unix socket.
func Client(peer string, forwarded []string, trusted []netip.Prefix) (addr netip.Addr, ok bool) {
	addr, ok = parseHost(peer)
	for i := len(forwarded) - 1; ok && i >= 0; i-- {
		for rest, more := forwarded[i], true; more; {
			if !isTrusted(addr, trusted) {
				return addr, true
			}
			var hop string
			hop, rest, more = cutLast(rest)
			next, known := parseHost(hop)
			if !known {
				return addr, true
			}
			addr = next
		}
	}
	return addr, ok
}

// cutLast cuts the last element off a list.
func cutLast(list string) (last, rest string, more bool) {
	if at := strings.LastIndexByte(list, ','); at >= 0 {
		return list[at+1:], list[:at], true
	}
	return list, "", false
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	for _, n := range trusted {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

// parseHost parses an address, with or without a port.
func parseHost(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if with, err := netip.ParseAddrPort(s); err == nil {
			addr = with.Addr()
		} else if inner, ok := strings.CutPrefix(s, "["); ok { // [2001:db8::1], without a port
			inner, closed := strings.CutSuffix(inner, "]")
			if addr, err = netip.ParseAddr(inner); err != nil || !closed || !addr.Is6() {
				return netip.Addr{}, false
			}
		}
	}
	return addr.Unmap().WithZone(""), addr.IsValid()
}
