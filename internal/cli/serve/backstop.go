package serve

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/fleet/instances"
	"github.com/weirlimits/weir/store"
)

// backstopFlags configure the answers while the store does not answer.
type backstopFlags struct {
	OnUnavailable weir.OnUnavailable `json:"on_unavailable" values:"local,deny,allow"`
	Instances     string             `json:"instances" default:"auto"`
	LocalMax      string             `json:"local_max" default:"100%"`

	counter atomic.Pointer[instances.Counter]
}

func (f *backstopFlags) check() error {
	if _, err := f.fixed(); f.Instances != "auto" && f.name() == "" && err != nil {
		return err
	}
	if strings.ContainsAny(f.name(), ":/, ") {
		return kit.Usagef("--instances %q must have only a host name after dns:, without a port or scheme", f.Instances)
	}
	_, err := f.localMax()
	return err
}

// localMax returns the percentage of the limits that all servers may admit without the store.
func (f *backstopFlags) localMax() (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(f.LocalMax, "%"))
	if err != nil || n < 1 || n > 100 || !strings.HasSuffix(f.LocalMax, "%") {
		return 0, kit.Usagef("--local-max %q must be from 1%% to 100%%", f.LocalMax)
	}
	return n, nil
}

// name returns the name whose addresses are counted, or "" if none is.
func (f *backstopFlags) name() string {
	name, _ := strings.CutPrefix(f.Instances, "dns:")
	if name == f.Instances {
		return ""
	}
	return name
}

func (f *backstopFlags) fixed() (int, error) {
	n, err := strconv.Atoi(f.Instances)
	if err != nil || n < 1 || n > 100_000 {
		return 0, kit.Usagef("--instances %q must be auto, dns:NAME, or a number from 1 to 100000", f.Instances)
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

func (f *backstopFlags) open(_ context.Context, s *serving) (err error) {
	s.run.Config.LocalMax, err = f.localMax()
	s.run.Config.OnUnavailable = cmp.Or(f.OnUnavailable, stores.OnUnavailable(s.run.Store))
	s.run.Config.Instances = f.count
	return err
}

//nolint:unparam // a step of a part may fail
func (f *backstopFlags) start(_ context.Context, s *serving) error {
	t := f.task(s.run.Store, s.run.Opened, s.log)
	if t == nil {
		return nil
	}
	s.tasks = append(s.tasks, t)
	if c, of := f.counter.Load(), &s.config; of.known != nil {
		c.From(of.known.Instances())
		c.Changed = func(n int) { of.flow.Counted(n) } // with a file there is a flow, once tasks run
	}
	return nil
}

// task returns the task that counts the servers on a store, or nil if there is nothing to count.
func (f *backstopFlags) task(address secret.Address, st store.Store, log *slog.Logger) task {
	if f.Instances != "auto" && f.name() == "" || stores.Alone(address) {
		return nil
	}
	c := instances.New(st, log)
	if name := f.name(); name != "" {
		c = instances.NewDNS(name, net.DefaultResolver, log)
	}
	f.counter.Store(c)
	return func(ctx context.Context) error { return c.Run(ctx) }
}
