package instances_test

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/fleet/instances"
)

// names is a resolver with a single name.
type names struct {
	mu    sync.Mutex
	addrs []string
	err   error
}

func (n *names) is(err error, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs, n.err = addrs, err
}

func (n *names) LookupNetIP(_ context.Context, _, host string) (got []netip.Addr, _ error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.addrs {
		got = append(got, netip.MustParseAddr(a))
	}
	if host != "weir.svc" {
		return nil, errDown
	}
	return got, n.err
}

// A name's addresses are counted at once if there are more, late if there are fewer, and not at all while the name does
// not resolve.
func TestDNS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &names{}
		n.is(errDown)
		c := instances.NewDNS("weir.svc", n, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { _ = c.Run(ctx) })
		look := func(want int, when string) {
			t.Helper()
			time.Sleep(6 * time.Second)
			wants(t, c, want, when)
		}
		look(1, "before it resolves")
		n.is(nil, "10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2", "fd00::1", "fd00::2")
		look(2, "of two, by both families")
		n.is(nil, "fd00::1", "fd00::2", "fd00::3")
		look(3, "of three")
		n.is(nil, "10.0.0.1")
		look(3, "of fewer, at first")
		n.is(errDown)
		time.Sleep(10 * time.Minute)
		look(3, "while it does not resolve")
		n.is(nil, "10.0.0.1")
		time.Sleep(4 * time.Minute)
		look(1, "of fewer, for long")
		n.is(nil)
		time.Sleep(4 * time.Minute)
		n.is(nil, "10.0.0.1", "10.0.0.2")
		look(2, "of two again")
		n.is(nil)
		time.Sleep(4 * time.Minute)
		look(2, "of none: they are not ready, for the store is away")
		stop()
		all.Wait()
	})
}
