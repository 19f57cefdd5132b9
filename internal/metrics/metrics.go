// Package metrics counts what a server decides: for Prometheus, for traces, and for the overview that the dashboard
// shows. It is told by an observer of the limiter, and adds nothing to what is decided.
//
// What a decision costs is one lock of one of a namespace's shards. All that is derived, such as rates and quantiles, is
// made once a second by one goroutine, or when somebody asks.
package metrics

import (
	"cmp"
	"hash/maphash"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// Config configures [Metrics]. The zero value is ready to use.
type Config struct {
	// Version is that of the program.
	Version string
	// Resources bounds how many resources, and how many names of limits, get a label value of their own; the rest is
	// "other". Defaults to 100.
	Resources int
	// Namespaces is how many namespaces get a label value of their own, the rest being "other". 0: there is no such label.
	Namespaces int
	// Streams is how many may follow overviews at once. Defaults to 64.
	Streams int
	// Log is told when decisions begin and cease to be made without the store. Defaults to nobody.
	Log *slog.Logger
	// Tracing, if not nil, records spans.
	Tracing *Tracing
}

// Metrics counts. It is safe for concurrent use. Close it.
type Metrics struct {
	cfg     Config
	started time.Time
	seed    maphash.Seed
	handler http.Handler

	resources, limits labels

	mu     sync.Mutex // of those who add a namespace
	spaces atomic.Pointer[map[string]*space]
	rest   *space // namespaces beyond maxSpaces, and requests of none

	calls   timings[callKey]
	http    requests
	rpc     requests
	sources atomic.Pointer[sources]
	config  atomic.Pointer[func() ConfigFlow]
	mirror  atomic.Pointer[func() time.Duration]
	cell    atomic.Pointer[func() Cell] // nil: there are no cells

	window   window // of all namespaces
	episode  episode
	degraded atomic.Bool // an episode goes on
	streams  streams
	stop     chan struct{}
	stopped  sync.WaitGroup
	close    sync.Once
}

// sources are what is asked at a scrape.
type sources struct {
	lim      *weir.Limiter
	measured store.Measured // nil: the store has nothing to tell
}

// maxSpaces is how many namespaces are told apart.
const maxSpaces = 100

// New returns metrics that count from now on.
func New(cfg Config) (*Metrics, error) {
	cfg.Resources = cmp.Or(cfg.Resources, 100)
	cfg.Streams = cmp.Or(cfg.Streams, 64)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case cfg.Resources < 0:
		return nil, &weir.ConfigError{Field: "Config.Resources", Reason: "must not be negative"}
	case cfg.Namespaces < 0 || cfg.Namespaces > maxSpaces:
		return nil, &weir.ConfigError{Field: "Config.Namespaces", Reason: "must be between 0 and 100"}
	case cfg.Streams < 0:
		return nil, &weir.ConfigError{Field: "Config.Streams", Reason: "must not be negative"}
	}
	m := &Metrics{cfg: cfg, started: time.Now(), seed: maphash.MakeSeed(), stop: make(chan struct{})}
	m.resources.max, m.limits.max = cfg.Resources, cfg.Resources
	m.rest = newSpace(0)
	m.spaces.Store(&map[string]*space{})
	m.window.last = m.started
	var err error
	if m.handler, err = m.exporter(); err != nil {
		return nil, err
	}
	m.stopped.Go(m.run)
	return m, nil
}

// Watch has the limiter's caches, and what its store can tell, among the figures. The store may have nothing to tell.
func (m *Metrics) Watch(lim *weir.Limiter, st store.Store) {
	s := &sources{lim: lim}
	s.measured, _ = st.(store.Measured)
	m.sources.Store(s)
}

// Handler answers scrapes, in the text formats of Prometheus.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Close ends the streams and what runs once a second. What was counted can still be read.
func (m *Metrics) Close() {
	m.close.Do(func() { close(m.stop) })
	m.stopped.Wait()
}

// space returns what is counted of a namespace. One that nobody has heard of gets a place only if it is known to
// exist, or who makes up names would fill them all.
func (m *Metrics) space(name string, exists bool) *space {
	if s := (*m.spaces.Load())[name]; s != nil {
		return s
	}
	if !exists {
		return m.rest
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *m.spaces.Load()
	if s := old[name]; s != nil {
		return s
	}
	if len(old) >= maxSpaces {
		return m.rest
	}
	grown := make(map[string]*space, len(old)+1)
	maps.Copy(grown, old)
	s := newSpace(len(old) + 1)
	grown[name] = s
	m.spaces.Store(&grown)
	return s
}

// run makes the figures of each second.
func (m *Metrics) run() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			m.streams.end()
			return
		case now := <-tick.C:
			m.second(now)
			m.streams.send(m.OverviewJSON)
		}
	}
}
