package instances

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
)

// Resolver looks up addresses, as [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewDNS returns a counter of the addresses that a name resolves to, such as that of a headless service; it needs no
// store. If the name has addresses of both families, the larger number counts. A failed lookup leaves the count unchanged.
func NewDNS(name string, r Resolver, log *slog.Logger) *Counter {
	c := New(nil, log)
	c.resolve = func(ctx context.Context) (int, error) {
		addrs, err := r.LookupNetIP(ctx, "ip", name)
		seen, v4 := make(map[netip.Addr]bool), 0
		for _, a := range addrs {
			if a = a.Unmap(); !seen[a] {
				seen[a] = true
				if a.Is4() {
					v4++
				}
			}
		}
		if err == nil && len(seen) == 0 {
			err = errors.New(name + " has no addresses")
		}
		return max(v4, len(seen)-v4), err
	}
	return c
}
