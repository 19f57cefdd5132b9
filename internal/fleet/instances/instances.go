// Package instances counts the processes that share a store, either as the members of a fleet that meets in its catalog
// or by the addresses of a DNS name.
//
// The count rises at once and falls late: it is the largest of the last three minutes in which the store, or the
// resolver, answered. So after an outage, in which no process could report itself, none is taken for gone.
package instances

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/internal/fleet/catalog"
	"github.com/weirlimits/weir/store"
)

const (
	// Every is how often a process reports itself and reads the count, plus or minus a tenth; in a fleet of more than
	// 500 less often, so that all together report themselves at most once per Each.
	Every = 5 * time.Second
	// Each is the least time between the reports of a whole fleet.
	Each = 10 * time.Millisecond
	// hold is how long the count stays up after that many instances were last seen.
	hold = 3 * time.Minute
	// gone is how long a record must be unchanged before its process counts as gone.
	gone = 8 * Every
)

// Counter counts processes. See [New] and [NewDNS].
type Counter struct {
	// Changed is called with the count when it changes. Set it before Run; optional.
	Changed func(int)

	find  func(context.Context) (int, error) // how many there are
	every time.Duration                      // how often find is called
	leave func() error
	log   *slog.Logger
	count atomic.Int64

	failed bool      // the last look failed
	most   time.Time // when at least count processes were last seen
	fewer  int       // the largest number seen since then
}

// New returns a counter of the processes that report themselves in a catalog. Its count is 1 until it runs.
func New(c store.Catalog, log *slog.Logger) *Counter {
	at := fleet.Place{
		Registry: catalog.Registry{Catalog: c, Namespace: "weir.instances", Kind: "member"},
		ID:       "worker-" + strings.ToLower(rand.Text()[:8]),
	}
	protocol := &counting{registry: at.Registry}
	member := fleet.NewMember(at, protocol)
	joined := false
	return newCounter(log, time.Second, func(ctx context.Context) (int, error) {
		if !joined {
			if err := member.Beat(ctx); err != nil {
				return 0, err
			}
			joined = true
			member.Start(ctx, nil)
		}
		return int(protocol.count.Load()), member.State().Err
	}, func() error { return member.Close() })
}

// Resolver looks up addresses, as [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// NewDNS returns a counter of the addresses that a name resolves to, such as that of a headless service; it needs no
// store. If the name has addresses of both families, the larger number counts. A failed lookup leaves the count
// unchanged.
func NewDNS(name string, r Resolver, log *slog.Logger) *Counter {
	return newCounter(log, Every, func(ctx context.Context) (int, error) {
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
	}, func() error { return nil })
}

func newCounter(
	log *slog.Logger, every time.Duration, find func(context.Context) (int, error), leave func() error,
) *Counter {
	c := &Counter{find: find, every: every, leave: leave, log: log}
	c.count.Store(1)
	return c
}

// Count returns the number of processes, including this one.
func (c *Counter) Count() int { return int(c.count.Load()) }

// From makes the count that of an earlier process, from before Run until three minutes after an answer.
func (c *Counter) From(n int) {
	if n > 1 {
		c.count.Store(int64(n))
		c.most = time.Now()
	}
}

// Run counts until ctx ends, and then removes what the process has reported.
func (c *Counter) Run(ctx context.Context) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for c.look(ctx); ; c.look(ctx) {
		select {
		case <-ctx.Done():
			_ = c.leave() // the others notice in time
			return nil
		case <-tick.C:
		}
	}
}

// look counts once.
func (c *Counter) look(ctx context.Context) {
	alive, err := c.find(ctx)
	now := time.Now()
	switch {
	case ctx.Err() != nil:
	case err != nil && !c.failed:
		c.failed = true
		c.log.WarnContext(ctx, "the instances could not be counted: the last count stays in use",
			slog.Int("instances", c.Count()), slog.Any("error", err))
	case err == nil:
		if c.failed {
			c.failed, c.most = false, now
		}
		c.settle(alive, now)
	}
}

// settle updates the count. It rises to alive at once. If it was last reached long ago, it falls to the largest number
// seen since.
func (c *Counter) settle(alive int, now time.Time) {
	before := c.Count()
	switch {
	case alive >= before:
		c.most, c.fewer = now, 0
		c.count.Store(int64(alive))
	case now.Sub(c.most) >= hold:
		c.count.Store(int64(max(c.fewer, alive)))
		c.most, c.fewer = now, 0
	default:
		c.fewer = max(c.fewer, alive)
	}
	if n := c.Count(); n != before {
		c.log.Info("the number of instances has changed", slog.Int("instances", n), slog.Int("before", before))
		if c.Changed != nil {
			c.Changed(n)
		}
	}
}
