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
	"github.com/weirlimits/weir/store"
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
	s.gauge("weir.build.info", "Always 1; the labels hold the versions.", point[float64]{
		v: 1, labels: []string{"version", m.cfg.Version, "go", runtime.Version()},
	})
	m.decisions(s)
	m.stores(s)
	m.reported(s)
	m.traffic(s)
	return []metricdata.ScopeMetrics{{
		Scope:   instrumentation.Scope{Name: "github.com/weirlimits/weir"},
		Metrics: s.metrics,
	}}, nil
}

// decisions adds the metrics of the limiter's decisions.
func (m *Metrics) decisions(s *Scrape) {
	var all tally
	byLabel := make(map[string]*tally)
	label := func(sp *space, name string) string {
		if sp.label == 0 || sp.label > m.cfg.Namespaces {
			return other
		}
		return name
	}
	collect := func(sp *space, name string) {
		t := sp.sum()
		all.took.add(&t.took)
		to := byLabel[label(sp, name)]
		if to == nil {
			to = &tally{}
			byLabel[label(sp, name)] = to
		}
		to.add(&t)
	}
	for name, sp := range *m.spaces.Load() {
		collect(sp, name)
	}
	collect(m.rest, other)

	var decided, refusals, would []point[int64]
	for name, t := range byLabel {
		var ns []string
		if m.cfg.Namespaces > 0 {
			ns = []string{"namespace", name}
		}
		for r, by := range t.resources {
			for o := range outcomes {
				if by[o] > 0 || o != invalid && r != 0 {
					decided = append(decided, point[int64]{int64(by[o]), append([]string{
						"outcome", o.String(),
						"resource", m.resources.name(r),
					}, ns...)})
				}
			}
		}
		for k, n := range t.refusals {
			refusals = append(refusals, point[int64]{int64(n), append([]string{
				"limit", m.limits.name(k.limit),
				"resource", m.resources.name(k.resource),
			}, ns...)})
		}
		for l, n := range t.would {
			would = append(would, point[int64]{int64(n), append([]string{"limit", m.limits.name(l)}, ns...)})
		}
	}
	s.count("weir.decisions", "Decisions by outcome; invalid is the caller's mistake.", decided...)
	s.count("weir.refusals", "Refusals by the limit that refused; a decision that two limits refused counts for both.",
		refusals...)
	s.count("weir.would.refusals", "Requests that a limit in shadow would have refused.", would...)
	s.histogram("weir.decision.duration", "Duration of decisions.", timed{&all.took, nil})

	var degradedNow float64
	if m.degraded.Load() {
		degradedNow = 1
	}
	s.gauge("weir.degraded", "1 while the store does not answer every decision, and for 10 s after.",
		point[float64]{v: degradedNow})
	var o Overview
	m.window.fillStore(&o)
	s.gauge("weir.calls.per.decision", "Store calls per decision, over the last 10 s.",
		point[float64]{v: o.Store.CallsPerDecision})
}

// stores adds the metrics of the store.
func (m *Metrics) stores(s *Scrape) {
	var took []timed
	errs := make(map[string]int64)
	m.calls.all(func(k callKey, h *histogram) {
		took = append(took, timed{h, []string{"op", k.op, "result", k.result}})
		if errs[k.op] += 0; troubled(k.result) {
			errs[k.op] += int64(h.total())
		}
	})
	s.histogram("weir.store.call.duration", "Duration of store calls.", took...)
	var failures []point[int64]
	for op, n := range errs {
		failures = append(failures, point[int64]{n, []string{"op", op}})
	}
	s.count("weir.store.errors", "Store calls that failed or were not answered in time.", failures...)

	src := m.sources.Load()
	if src == nil {
		return
	}
	st := parts.Of(src.lim).Policies.Stats()
	s.count("weir.cache.lookups", "Lookups of entities, limits and namespaces in the limiter's caches.",
		point[int64]{int64(st.Hits), []string{"result", "hit"}}, point[int64]{int64(st.Misses), []string{
			"result",
			"miss",
		}})
	s.gauge("weir.cache.entries", "Records in the limiter's caches.", point[float64]{v: float64(st.Entries)})
	s.gauge("weir.cache.plans", "Pairs of entity and resource whose limits are cached.",
		point[float64]{v: float64(st.Policies)})
	s.backstop(parts.Of(src.lim).Outage.Stats())
	if src.measured == nil {
		return
	}
	for _, me := range src.measured.Measures() {
		s.measure(me)
	}
}

func (s *Scrape) measure(me store.Measure) {
	if me.Total {
		s.add("weir.store."+me.Name, me.Help, "", metricdata.Sum[float64]{
			Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
			DataPoints: dataPoints(s, point[float64]{v: me.Value}),
		})
		return
	}
	s.gauge("weir.store."+me.Name, me.Help, point[float64]{v: me.Value})
}

// Scrape collects the metrics of one scrape. See [Metrics.Register].
type Scrape struct {
	start, now time.Time
	namespaces int // with a label value of their own
	metrics    []metricdata.Metrics
}

// point is a value with its labels, alternating names and values.
type point[N int64 | float64] struct {
	v      N
	labels []string
}

// timed is a distribution with its labels.
type timed struct {
	h      *histogram
	labels []string
}

func (s *Scrape) add(name, help, unit string, data metricdata.Aggregation) {
	s.metrics = append(s.metrics, metricdata.Metrics{Name: name, Description: help, Unit: unit, Data: data})
}

func (s *Scrape) count(name, help string, ps ...point[int64]) {
	s.add(name, help, "", metricdata.Sum[int64]{
		Temporality: metricdata.CumulativeTemporality, IsMonotonic: true, DataPoints: dataPoints(s, ps...),
	})
}

func (s *Scrape) gauge(name, help string, ps ...point[float64]) {
	s.add(name, help, "", metricdata.Gauge[float64]{DataPoints: dataPoints(s, ps...)})
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

func dataPoints[N int64 | float64](s *Scrape, ps ...point[N]) []metricdata.DataPoint[N] {
	points := make([]metricdata.DataPoint[N], len(ps))
	for i, p := range ps {
		points[i] = metricdata.DataPoint[N]{
			Attributes: attributes(p.labels), StartTime: s.start, Time: s.now,
			Value: p.v,
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
