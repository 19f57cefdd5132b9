package envoy

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// unknown is why a domain's descriptors cannot be limited.
type unknown struct {
	domain string
	reason reason
}

// maxUnknown is how many domains and reasons are counted and logged; the first request of each is logged.
const maxUnknown = 300

// unknown counts a descriptor that cannot be limited, and refuses it with [Config.DenyUnknown]. Otherwise it returns
// true, and the descriptor's code stays UNKNOWN.
func (c *call) unknown(ctx context.Context, at int, why reason) (admitted bool) {
	n, ok := c.s.unknown.Of(unknown{c.domain, why}, maxUnknown, func(int) *atomic.Uint64 {
		c.s.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "requests of Envoy cannot be limited; this is logged once",
			slog.String("domain", c.domain), slog.String("why", string(why)),
			slog.Bool("refused", c.s.cfg.DenyUnknown))
		return new(atomic.Uint64)
	})
	if ok {
		n.Add(1)
	}
	if c.s.cfg.DenyUnknown {
		for i := range c.requests {
			c.buf.status[c.requests[i].at].Code = codeOK
		}
		c.refuse(at, why)
		return false
	}
	c.reason = why
	return true
}

// Unknown returns how many descriptors could not be limited, by the reason: the domain is unknown, the descriptor has
// no entity, or no limits apply.
func (s *Service) Unknown() map[string]uint64 {
	counts := map[string]uint64{"domain": 0, "descriptor": 0, "limits": 0}
	names := map[reason]string{reasonDomain: "domain", reasonDescriptor: "descriptor", reasonNoLimits: "limits"}
	for k, n := range s.unknown.All() {
		counts[names[k.reason]] += n.Load()
	}
	return counts
}
