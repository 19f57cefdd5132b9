package serve

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/fleet/instances"
	"github.com/weirlimits/weir/store"
)

// backstopFlags configure the answers while the store does not answer.
type backstopFlags struct {
	onUnavailable, instances string

	counter atomic.Pointer[instances.Counter]
}

func (f *backstopFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.onUnavailable, "on-unavailable", string(
		weir.OnUnavailableLocal,
	), "`ANSWER` while the store does not "+
		"answer: local admits this server's share of the limits, deny refuses, allow admits everything; weir system "+
		"set --on-unavailable overrides it")
	flags.StringVar(&f.instances, "instances", "auto", "number of servers that share the limits while the store "+
		"does not answer: `N`, auto to count heartbeats in the store, or dns:NAME to count the addresses of a name, "+
		"such as a headless service's")
}

func (f *backstopFlags) check() error {
	switch weir.OnUnavailable(f.onUnavailable) {
	case weir.OnUnavailableLocal, weir.OnUnavailableDeny, weir.OnUnavailableAllow:
	default:
		return kit.Usagef("--on-unavailable %q must be local, deny or allow", f.onUnavailable)
	}
	if _, err := f.fixed(); f.instances != "auto" && f.name() == "" && err != nil {
		return err
	}
	if strings.ContainsAny(f.name(), ":/, ") {
		return kit.Usagef("--instances %q must have only a host name after dns:, without a port or scheme", f.instances)
	}
	return nil
}

// name returns the name whose addresses are counted, or "" if none is.
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
		return 0, kit.Usagef("--instances %q must be auto, dns:NAME, or a number from 1 to 100000", f.instances)
	}
	return n, nil
}

// count returns the number of servers, as far as it is known.
func (f *backstopFlags) count() int {
	if c := f.counter.Load(); c != nil {
		return c.Count()
	}
	if n, err := f.fixed(); err == nil {
		return n
	}
	return 1 // not counted yet, or nothing to count
}

//nolint:unparam // a step of a part may fail
func (f *backstopFlags) open(_ context.Context, s *serving) error {
	s.run.Config.OnUnavailable, s.run.Config.Instances = weir.OnUnavailable(f.onUnavailable), f.count
	return nil
}

//nolint:unparam // a step of a part may fail
func (f *backstopFlags) start(_ context.Context, s *serving) error {
	if t := f.task(s.run.Store, s.run.Opened, s.log); t != nil {
		s.tasks = append(s.tasks, t)
	}
	return nil
}

// task returns the task that counts the servers on a store, or nil if there is nothing to count.
func (f *backstopFlags) task(address string, st store.Store, log *slog.Logger) task {
	scheme, _, _ := strings.Cut(address, ":")
	if f.instances != "auto" && f.name() == "" || scheme == "memory" || scheme == "disk" { // used by one process only
		return nil
	}
	c := instances.New(st, log)
	if name := f.name(); name != "" {
		c = instances.NewDNS(name, net.DefaultResolver, log)
	}
	f.counter.Store(c)
	return func(ctx context.Context) error { return c.Run(ctx) }
}
