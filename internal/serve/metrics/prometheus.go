package metrics

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weirlimits/weir/internal/parts"
)

// exporter returns the handler of scrapes. OpenTelemetry receives the counts from a custom producer, because its own
// instruments would cost a decision as much as the decision itself.
func (m *Metrics) exporter() (http.Handler, error) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := otelprom.New(otelprom.WithRegisterer(reg), otelprom.WithProducer(m), otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)) // registers the reader
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}), nil
}

// Produce implements the Producer of the OpenTelemetry SDK. It returns the current values of all metrics.
func (m *Metrics) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	s := &Scrape{start: m.started, now: time.Now(), namespaces: m.cfg.Namespaces}
	s.gauge("weir.build.info", "Always 1; the labels hold the versions.",
		value(1, "version", m.cfg.Version, "go", runtime.Version()))
	m.decisions(s)
	m.stores(s)
	m.reported(s)
	m.traffic.report(s)
	s.gauge("weir.overview.streams", "Open streams of the overview.", value(m.streams.len()))
	return []metricdata.ScopeMetrics{{
		Scope:   instrumentation.Scope{Name: "github.com/weirlimits/weir"},
		Metrics: s.metrics,
	}}, nil
}

// byNamespace returns the counts by the label value of their namespace, and the durations in all namespaces.
func (m *Metrics) byNamespace() (byLabel map[string]*tally, took *histogram) {
	byLabel, took = make(map[string]*tally), new(histogram)
	collect := func(sp *space, name string) {
		t := sp.sum()
		took.add(&t.took)
		if sp.label == 0 || sp.label > m.cfg.Namespaces {
			name = other
		}
		if byLabel[name] == nil {
			byLabel[name] = &tally{}
		}
		byLabel[name].add(&t)
	}
	for name, sp := range m.spaces.All() {
		collect(sp, name)
	}
	collect(m.rest, other)
	return byLabel, took
}

// decisions adds the metrics of the limiter's decisions.
func (m *Metrics) decisions(s *Scrape) {
	var decided, refusals, would []point
	byLabel, took := m.byNamespace()
	resources, limits := m.resources.names(), m.limits.names() // read last, so that no number lacks a name
	for name, t := range byLabel {
		var ns []string
		if m.cfg.Namespaces > 0 {
			ns = []string{"namespace", name}
		}
		for r, by := range t.resources {
			for o := range outcomes {
				if by[o] > 0 || o != invalid && r != 0 {
					labels := append([]string{"outcome", o.String(), "resource", resources[r]}, ns...)
					decided = append(decided, value(by[o], labels...))
				}
			}
		}
		for k, n := range t.refusals {
			labels := append([]string{"limit", limits[k.limit], "resource", resources[k.resource]}, ns...)
			refusals = append(refusals, value(n, labels...))
		}
		for l, n := range t.would {
			would = append(would, value(n, append([]string{"limit", limits[l]}, ns...)...))
		}
	}
	s.count("weir.decisions", "Decisions by outcome; invalid is the caller's mistake.", decided...)
	s.count("weir.refusals", "Refusals by the limit that refused; a decision that two limits refused counts for both.",
		refusals...)
	s.count("weir.would.refusals", "Requests that a limit in shadow would have refused.", would...)
	s.histogram("weir.decision.duration", "Duration of decisions.", timed{took, nil})

	s.gauge("weir.degraded", "1 while the store does not answer every decision, and for 10 s after.",
		yes(m.degraded.Load()))
	var o Overview
	m.window.fillStore(&o)
	s.gauge("weir.calls.per.decision", "Store calls per decision, over the last 10 s.",
		value(o.Store.CallsPerDecision))
}

// stores adds the metrics of the store.
func (m *Metrics) stores(s *Scrape) {
	var took []timed
	errs := make(map[string]uint64)
	m.calls.all(func(k callKey, h *histogram) {
		took = append(took, timed{h, []string{"op", k.op, "result", k.result}})
		if errs[k.op] += 0; troubled(k.result) {
			errs[k.op] += h.total()
		}
	})
	s.histogram("weir.store.call.duration", "Duration of store calls.", took...)
	var failures []point
	for op, n := range errs {
		failures = append(failures, value(n, "op", op))
	}
	s.count("weir.store.errors", "Store calls that failed or were not answered in time.", failures...)

	src := m.sources.Load()
	if src == nil {
		return
	}
	st := parts.Of(src.lim).Policies.Stats()
	s.count("weir.cache.lookups", "Lookups of entities, limits and namespaces in the limiter's caches.",
		value(st.Hits, "result", "hit"), value(st.Misses, "result", "miss"))
	s.gauge("weir.cache.entries", "Records in the limiter's caches.", value(st.Entries))
	s.gauge("weir.cache.plans", "Pairs of entity and resource whose limits are cached.",
		value(st.Policies))
	s.backstop(parts.Of(src.lim).Outage.Stats())
	if src.measured == nil {
		return
	}
	for _, me := range src.measured.Measures() {
		add := s.gauge
		if me.Total {
			add = s.count
		}
		add("weir.store."+me.Name, me.Help, value(me.Value))
	}
}

// Scrape collects the metrics of one scrape. See [Metrics.Register].
type Scrape struct {
	start, now time.Time
	namespaces int // with a label value of their own
	metrics    []metricdata.Metrics
}

// point is a value with its labels, alternating names and values.
type point struct {
	v      float64
	labels []string
}

func value[N int | int64 | uint64 | float64](v N, labels ...string) point {
	return point{float64(v), labels}
}

// yes is 1 or 0.
func yes(v bool, labels ...string) point {
	if v {
		return point{1, labels}
	}
	return point{0, labels}
}

// timed is a distribution with its labels.
type timed struct {
	h      *histogram
	labels []string
}

func (s *Scrape) add(name, help, unit string, data metricdata.Aggregation) {
	s.metrics = append(s.metrics, metricdata.Metrics{Name: name, Description: help, Unit: unit, Data: data})
}

func (s *Scrape) count(name, help string, ps ...point) {
	s.add(name, help, "", metricdata.Sum[float64]{
		Temporality: metricdata.CumulativeTemporality, IsMonotonic: true, DataPoints: s.points(ps),
	})
}

func (s *Scrape) gauge(name, help string, ps ...point) {
	s.add(name, help, "", metricdata.Gauge[float64]{DataPoints: s.points(ps)})
}

func (s *Scrape) histogram(name, help string, ts ...timed) {
	points := make([]metricdata.HistogramDataPoint[float64], 0, len(ts))
	for _, t := range ts {
		p := metricdata.HistogramDataPoint[float64]{
			Attributes: attributes(t.labels), StartTime: s.start, Time: s.now,
			Count: t.h.total(), Sum: t.h.sum.Seconds(), Bounds: coarse, BucketCounts: t.h.coarse(),
		}
		points = append(points, p)
	}
	s.add(name, help, "s", metricdata.Histogram[float64]{
		Temporality: metricdata.CumulativeTemporality,
		DataPoints:  points,
	})
}

func (s *Scrape) points(ps []point) []metricdata.DataPoint[float64] {
	points := make([]metricdata.DataPoint[float64], len(ps))
	for i, p := range ps {
		points[i] = metricdata.DataPoint[float64]{
			Attributes: attributes(p.labels), StartTime: s.start, Time: s.now, Value: p.v,
		}
	}
	return points
}

func attributes(labels []string) attribute.Set {
	kvs := make([]attribute.KeyValue, 0, len(labels)/2)
	for i := 0; i+1 < len(labels); i += 2 {
		kvs = append(kvs, attribute.String(labels[i], labels[i+1]))
	}
	return attribute.NewSet(kvs...)
}
