// Package metrics counts what a server decides: for Prometheus, for traces, and for the dashboard's overview. It is
// fed by an observer of the limiter, and does not influence decisions.
//
// A decision costs one lock of one of a namespace's shards. Everything derived, such as rates and quantiles, is
// computed once a second by one goroutine, or on demand.
package metrics

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/growing"
)

// Config configures [Metrics]. The zero value is ready to use.
type Config struct {
	// Version is the version of the program.
	Version string
	// Resources is how many resources that the catalog has limits for, how many others, and how many limit names of
	// the catalog and of requests get a label value of their own; the rest are "other". The default is 100.
	Resources int
	// Namespaces is how many namespaces get a label value of their own; the rest are "other". 0 means no such label.
	Namespaces int
	// Log receives a message when decisions start and stop being made without the store. Nil discards them.
	Log *slog.Logger
	// Tracing, if not nil, records spans.
	Tracing *Tracing
}

// Metrics counts decisions. It is safe for concurrent use. Close it after use.
type Metrics struct {
	traffic
	names
	namespaces
	recently
	loop

	cfg      Config
	started  time.Time
	seed     maphash.Seed
	registry *prometheus.Registry
	handler  http.Handler
	calls    *calls
	limiter  atomic.Pointer[weir.Limiter] // nil before Watch
}

// names are the label values of limits and what they apply to.
type names struct{ resources, limits labels }

// namespaces holds the counts of each namespace.
type namespaces struct {
	spaces growing.Map[string, *space]
	rest   *space // namespaces beyond maxSpaces, and requests without one
}

// recently describes the last seconds.
type recently struct {
	window    window // of all namespaces
	episode   episode
	degraded  atomic.Bool // an episode is in progress
	followers followers
}

// loop is the once-a-second goroutine.
type loop struct {
	end     context.Context //nolint:containedctx // of the goroutine, which outlives every call
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// maxSpaces is how many namespaces are counted separately.
const maxSpaces = 100

// New returns metrics that count from now on.
func New(cfg Config) (*Metrics, error) {
	cfg.Resources = cmp.Or(cfg.Resources, 100)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	switch {
	case cfg.Resources < 0:
		return nil, &weir.ConfigError{Field: "Config.Resources", Reason: "must not be negative"}
	case cfg.Namespaces < 0 || cfg.Namespaces > maxSpaces:
		return nil, &weir.ConfigError{Field: "Config.Namespaces", Reason: "must be between 0 and 100"}
	}
	reg := newRegistry()
	m := &Metrics{
		cfg: cfg, started: time.Now(), seed: maphash.MakeSeed(), registry: reg, handler: newHandler(reg),
		calls: newCalls(reg), traffic: newTraffic(reg, cfg.Tracing),
	}
	m.end, m.stop = context.WithCancel(context.Background())
	m.resources.max, m.limits.max = cfg.Resources, cfg.Resources
	m.rest = newSpace(0)
	m.window.last = m.started
	m.followers.slots = admission.New(maxFollowers)
	m.followers.next()
	m.Register(m.own)
	m.stopped.Go(m.run)
	return m, nil
}

// Close ends the streams and the once-a-second goroutine. Counts can still be read.
func (m *Metrics) Close() {
	m.stop()
	m.stopped.Wait()
}

// space returns the counts of a namespace. An unknown name gets its own only if the namespace is known to exist;
// otherwise made-up names could fill all places.
func (n *namespaces) space(name string, exists bool) *space {
	most := maxSpaces
	if !exists {
		most = 0
	}
	if s, ok := n.spaces.Of(name, most, func(known int) *space { return newSpace(known + 1) }); ok {
		return s
	}
	return n.rest
}

// run computes the figures of each second.
func (m *Metrics) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.end.Done():
			return
		case now := <-tick.C:
			m.second(now)
			m.followers.next()
		}
	}
}

// second ends a second for all namespaces.
func (m *Metrics) second(now time.Time) {
	var all sums
	for _, s := range m.spaces.All() {
		one := s.sums()
		s.window.advance(now, &one)
		all.add(&one)
	}
	rest := m.rest.sums()
	all.add(&rest)
	all.calls, all.errors = m.calls.takes.Load(), m.calls.failed.Load()
	if lim := m.limiter.Load(); lim != nil {
		st := parts.Of(lim).Policies.Stats()
		all.hits, all.misses = st.Hits, st.Misses
		out := parts.Of(lim).Outage.Stats()
		all.unanswered = out.TimedOut + out.Failed + out.NotCalled
	}
	came := m.window.advance(now, &all)
	m.episode.second(m.cfg.Log, now, came.totals[local]+came.totals[unmetered], came.totals[failed])
	m.degraded.Store(!m.episode.began.IsZero())
}
