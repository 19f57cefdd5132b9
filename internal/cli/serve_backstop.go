package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/instances"
	"github.com/weirlimits/weir/store"
)

// backstopFlags say what is answered while the store does not.
type backstopFlags struct {
	onUnavailable, instances string

	counter atomic.Pointer[instances.Counter]
}

func (f *backstopFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.onUnavailable, "on-unavailable", string(weir.Local), "`WHAT` to answer while the store does not: local admits this server's share of the limits, deny refuses, allow admits everything; system set --on-unavailable goes before it")
	flags.StringVar(&f.instances, "instances", "auto", "how many servers share the limits while the store does not answer: `N`; auto: by heartbeats in the store; dns:NAME: as many as the name has addresses, as a headless service's")
}

func (f *backstopFlags) check() error {
	switch weir.Unavailable(f.onUnavailable) {
	case weir.Local, weir.Deny, weir.Allow:
	default:
		return usageError{fmt.Errorf("--on-unavailable %q must be local, deny or allow", f.onUnavailable)}
	}
	if _, err := f.fixed(); f.instances != "auto" && f.name() == "" && err != nil {
		return err
	}
	if strings.ContainsAny(f.name(), ":/, ") {
		return usageError{fmt.Errorf("--instances %q must have a name alone, without a port or scheme", f.instances)}
	}
	return nil
}

// name is whose addresses are counted; "" if none are.
func (f *backstopFlags) name() string {
	name, _ := strings.CutPrefix(f.instances, "dns:")
	if name == f.instances {
		return ""
	}
	return name
}

func (f *backstopFlags) fixed() (int, error) {
	n, err := strconv.Atoi(f.instances)
	if err != nil || n < 1 || n > 100_000 {
		return 0, usageError{fmt.Errorf("--instances %q must be auto, dns:NAME, or a number from 1 to 100000", f.instances)}
	}
	return n, nil
}

// count returns how many servers there are, as far as is known.
func (f *backstopFlags) count() int {
	if c := f.counter.Load(); c != nil {
		return c.Count()
	}
	if n, err := f.fixed(); err == nil {
		return n
	}
	return 1 // not counted yet, or nobody to count
}

// part counts the servers on a store; nil if there is nothing to count.
func (f *backstopFlags) part(address string, st store.Store, log *slog.Logger) part {
	scheme, _, _ := strings.Cut(address, ":")
	if f.instances != "auto" && f.name() == "" || scheme == "memory" || scheme == "disk" { // which belong to one process
		return nil
	}
	c := instances.New(st, log)
	if name := f.name(); name != "" {
		c = instances.NewDNS(name, net.DefaultResolver, log)
	}
	f.counter.Store(c)
	return func(ctx context.Context) error { return c.Run(ctx) }
}
