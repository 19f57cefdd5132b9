package metrics

import (
	"math"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/growing"
	"github.com/weirlimits/weir/store"
)

// newRegistry returns a registry with the metrics of Go and of the process.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// Handler answers scrapes, in the text formats of Prometheus.
func (m *Metrics) Handler() http.Handler { return m.handler }

// Only answers scrapes of a process without a limiter, with the metrics whose values report computes, and those that
// others collect.
func Only(report func(*Scrape), others ...prometheus.Collector) http.Handler {
	reg := newRegistry()
	reg.MustRegister(others...)
	reg.MustRegister(collector(func(ch chan<- prometheus.Metric) { report(&Scrape{ch: ch}) }))
	return newHandler(reg)
}

func newHandler(reg *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Register adds metrics whose values report computes at each scrape. Scrapes may be concurrent.
func (m *Metrics) Register(report func(*Scrape)) {
	m.registry.MustRegister(collector(func(ch chan<- prometheus.Metric) {
		report(&Scrape{Namespaces: m.cfg.Namespaces, ch: ch})
	}))
}

// collector implements [prometheus.Collector]. It describes no metrics in advance.
type collector func(ch chan<- prometheus.Metric)

// Describe implements [prometheus.Collector].
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) { c(ch) }

// Scrape collects metrics for one scrape. See [Metrics.Register].
type Scrape struct {
	// Namespaces is how many namespaces get a label value of their own; the rest are [Other].
	Namespaces int

	ch chan<- prometheus.Metric
}

// Point is a value with its labels.
type Point struct {
	value  float64
	labels []string
}

// Value returns a point. The labels alternate names and values.
func Value[N int | int64 | uint64 | float64](v N, labels ...string) Point {
	return Point{float64(v), labels}
}

// Truth returns a point with the value 1 for true and 0 for false.
func Truth(v bool, labels ...string) Point {
	if v {
		return Point{1, labels}
	}
	return Point{0, labels}
}

// Counter adds a metric that only grows. Its name ends in _total.
func (s *Scrape) Counter(name, help string, points ...Point) {
	s.add(prometheus.CounterValue, name, help, points)
}

// Gauge adds a metric that grows and shrinks.
func (s *Scrape) Gauge(name, help string, points ...Point) {
	s.add(prometheus.GaugeValue, name, help, points)
}

func (s *Scrape) add(kind prometheus.ValueType, name, help string, points []Point) {
	for _, p := range points {
		var names, values []string
		for pair := range slices.Chunk(p.labels, 2) {
			names, values = append(names, pair[0]), append(values, pair[1])
		}
		desc := prometheus.NewDesc(name, help, names, nil)
		metric, err := prometheus.NewConstMetric(desc, kind, p.value, values...)
		if err != nil {
			metric = prometheus.NewInvalidMetric(desc, err)
		}
		s.ch <- metric
	}
}

// calls measures the store's calls.
type calls struct {
	by    growing.Map[callKey, prometheus.Observer]
	took  *prometheus.HistogramVec
	fails *prometheus.CounterVec

	takes, failed atomic.Uint64 // of all kinds
}

// callKey is a kind of store call with its result.
type callKey struct{ op, result string }

func newCalls(reg prometheus.Registerer) *calls {
	c := &calls{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_store_call_duration_seconds", Help: "Duration of store calls.", Buckets: coarseBounds,
		}, []string{"op", "result"}),
		fails: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_store_errors_total", Help: "Store calls that failed or were not answered in time.",
		}, []string{"op"}),
	}
	reg.MustRegister(c.took, c.fails)
	return c
}

func (c *calls) observe(k callKey, took time.Duration) {
	of, _ := c.by.Of(k, math.MaxInt, func(int) prometheus.Observer {
		c.fails.WithLabelValues(k.op) // exists from the first call on, also without errors
		return c.took.WithLabelValues(k.op, k.result)
	})
	of.Observe(took.Seconds())
	if k.op == "take" {
		c.takes.Add(1)
	}
	if troubled(k.result) {
		c.failed.Add(1)
		c.fails.WithLabelValues(k.op).Inc()
	}
}

// own adds the metrics of the limiter's decisions, of the overview and of the program.
func (m *Metrics) own(s *Scrape) {
	s.Gauge("weir_build_info", "Always 1; the labels hold the versions.",
		Value(1, "version", m.cfg.Version, "go", runtime.Version()))
	s.Gauge("weir_overview_streams", "Open streams of the overview.", Value(m.followers.open.Load()))
	s.Gauge("weir_degraded", "1 while some decisions are not answered by the store in time, and for 10 s after.",
		Truth(m.degraded.Load()))
	var o Overview
	m.window.fillStore(&o)
	s.Gauge("weir_calls_per_decision", "Store calls per decision, over the last 10 s.",
		Value(o.Store.CallsPerDecision))

	byLabel, took := m.byNamespace()
	s.ch <- prometheus.MustNewConstHistogram(
		prometheus.NewDesc("weir_decision_duration_seconds", "Duration of decisions.", nil, nil),
		took.total(), took.sum.Seconds(), took.coarse())
	resources, limits := m.resources.names(), m.limits.names() // read last, so that no number lacks a name
	for name, t := range byLabel {
		var ns []string
		if s.Namespaces > 0 {
			ns = []string{"namespace", name}
		}
		for r, by := range t.resources {
			for o := range outcomes {
				if by[o] > 0 || o != invalid && r != 0 {
					s.Counter("weir_decisions_total", "Decisions by outcome; invalid is the caller's mistake.",
						Value(by[o], append(ns, "outcome", o.String(), "resource", resources[r])...))
				}
			}
		}
		for k, n := range t.refusals {
			s.Counter("weir_refusals_total",
				"Refusals by the limit that refused; a decision that two limits refused counts for both.",
				Value(n, append(ns, "limit", limits[k.limit], "resource", resources[k.resource])...))
		}
		s.Counter("weir_bucket_quota_refusals_total",
			"Requests refused a bucket, because the namespace has as many live ones on this server as it may.",
			Value(t.quota, ns...))
		for l, n := range t.would {
			s.Counter("weir_would_refusals_total", "Requests that a limit in shadow would have refused.",
				Value(n, append(ns, "limit", limits[l])...))
		}
	}
}

// byNamespace returns the counts by the label value of their namespace, and the durations in all namespaces.
func (m *Metrics) byNamespace() (byLabel map[string]*tally, took *histogram) {
	byLabel, took = make(map[string]*tally), new(histogram)
	collect := func(name string, sp *space) {
		t := sp.sum()
		took.add(&t.took)
		if sp.label == 0 || sp.label > m.cfg.Namespaces {
			name = Other
		}
		if byLabel[name] == nil {
			byLabel[name] = &tally{}
		}
		byLabel[name].add(&t)
	}
	for name, sp := range m.spaces.All() {
		collect(name, sp)
	}
	collect(Other, m.rest)
	return byLabel, took
}

// Watch adds the metrics of the limiter's caches, of its decisions without the store, and of the store, if that reports
// any. Call it once.
func (m *Metrics) Watch(lim *weir.Limiter, st store.Store) {
	m.limiter.Store(lim)
	of := parts.Of(lim)
	m.Register(func(s *Scrape) {
		st := of.Policies.Stats()
		s.Counter("weir_cache_lookups_total", "Lookups of entities, limits and namespaces in the limiter's caches.",
			Value(st.Hits, "result", "hit"), Value(st.Misses, "result", "miss"))
		s.Gauge("weir_cache_entries", "Records in the limiter's caches.", Value(st.Entries))
		s.Gauge("weir_cache_plans", "Pairs of entity and resource whose limits are cached.", Value(st.Policies))
		s.Gauge("weir_decide_within_seconds", "How long a decision may take.", Value(of.Within.Get().Seconds()))
		s.outage(of.Outage.Stats())
		slots := of.Slots.Stats()
		s.Counter("weir_slots_taken_total", "Slots that were taken.", Value(slots.Taken))
		s.Counter("weir_slots_returned_total", "Slots that were given back.", Value(slots.Returned))
		s.Counter("weir_slots_lost_total", "Slots that were lost because they were renewed too late.",
			Value(slots.Lost))
	})
	measured, ok := st.(store.Measured)
	if !ok {
		return
	}
	m.Register(func(s *Scrape) {
		for _, me := range measured.Measures() {
			name, kind := "weir_store_"+me.Name, prometheus.GaugeValue
			if me.Total {
				name, kind = name+"_total", prometheus.CounterValue
			}
			s.add(kind, name, me.Help, []Point{Value(me.Value)})
		}
	})
}

// outage adds the metrics of decisions made while the store does not answer.
func (s *Scrape) outage(st outage.Stats) {
	for _, state := range []string{"closed", "open", "half-open"} {
		now := st.Breaker == state || st.Breaker == "" && state == "closed"
		s.Gauge("weir_breaker_state", "1 for the current state: closed, the store is asked; open, it is not; "+
			"half-open, one call probes it.", Truth(now, "state", state))
	}
	s.Counter("weir_breaker_openings_total", "How often the breaker opened.", Value(st.Openings))
	s.Counter("weir_degraded_decisions_total", "Decisions made without the store, whatever the outcome, by the reason.",
		Value(st.TimedOut, "cause", string(weir.CauseTimeout)),
		Value(st.Failed, "cause", string(weir.CauseError)),
		Value(st.NotCalled, "cause", string(weir.CauseOpen)))
	s.Gauge("weir_instances", "Servers that are believed to share the limits while the store does not answer.",
		Value(st.Instances))
	s.Gauge("weir_local_shares", "Buckets whose local share this server keeps.", Value(st.Shares))
	s.Counter("weir_local_admitted_tokens_total", "Tokens admitted from local shares.", Value(st.Admitted))
	s.Counter("weir_local_refusals_total", "Requests that local shares refused.", Value(st.Refused))
	s.Gauge("weir_local_owing", "Buckets whose local admissions have yet to be charged to the store.", Value(st.Owing))
	s.Counter("weir_local_charged_tokens_total", "Tokens admitted locally and charged to the store afterwards.",
		Value(st.Charged))
	s.Counter("weir_local_lost_tokens_total", "Tokens admitted locally that will never be charged, for lack of room "+
		"or because the store refuses.", Value(st.Lost))
}
