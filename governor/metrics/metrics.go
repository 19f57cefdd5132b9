// Package metrics exports the figures of a governor to Prometheus.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimits/weir/governor"
)

// Collector returns a collector of a governor's figures: for each budget, by table, index and direction; and how many
// processes share the budgets, if it is in a fleet. Register it in the registry of the process.
func Collector(g *governor.Governor) prometheus.Collector { return collector{g.Status} }

// collector collects the figures of a status.
type collector struct{ status func() governor.Status }

// figure is a metric of each budget.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*governor.BudgetStatus) float64
}

var figures = []figure{
	counter("units_total", "Capacity units consumed.", func(b *governor.BudgetStatus) float64 { return b.Consumed }),
	counter("estimated_units_total", "Those that DynamoDB did not report.",
		func(b *governor.BudgetStatus) float64 { return b.Estimated }),
	gauge("limit", "Configured capacity units per second.", func(b *governor.BudgetStatus) float64 { return b.Limit }),
	gauge("rate", "Capacity units per second that may be used now.",
		func(b *governor.BudgetStatus) float64 { return b.Rate }),
	gauge("available", "Capacity units that can be used at once; negative in debt.",
		func(b *governor.BudgetStatus) float64 { return b.Available }),
	gauge("waiting", "Requests that wait for a budget.",
		func(b *governor.BudgetStatus) float64 { return float64(b.Waiting) }),
	counter("waited_seconds_total", "Time that requests have waited.",
		func(b *governor.BudgetStatus) float64 { return b.Waited.Seconds() }),
	counter("refused_total", "Requests that a budget did not allow in time.",
		func(b *governor.BudgetStatus) float64 { return float64(b.Refused) }),
	counter("throttles_total", "Times that DynamoDB throttled.",
		func(b *governor.BudgetStatus) float64 { return float64(b.Throttles) }),
	counter("hot_keys_total", "Times that DynamoDB throttled because of a hot key range.",
		func(b *governor.BudgetStatus) float64 { return float64(b.HotKeys) }),
}

func counter(name, help string, of func(*governor.BudgetStatus) float64) figure {
	return figure{desc(name, help, "table", "index", "direction"), prometheus.CounterValue, of}
}

func gauge(name, help string, of func(*governor.BudgetStatus) float64) figure {
	return figure{desc(name, help, "table", "index", "direction"), prometheus.GaugeValue, of}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_governor_"+name, help, labels, nil)
}

var (
	workers = desc("workers", "Processes that share the budgets.")
	granted = desc("share_granted", "1 while this process has a share of the fleet's budgets, 0 while it has none or "+
		"its safe share.")
)

// Describe implements [prometheus.Collector].
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range figures {
		ch <- f.desc
	}
	ch <- workers
	ch <- granted
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	for i := range s.Budgets {
		b := &s.Budgets[i]
		for _, f := range figures {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(b), b.Table, b.Index, b.Direction.String())
		}
	}
	if s.Fleet.Worker == "" {
		return
	}
	has := 0.0
	if s.Fleet.Granted {
		has = 1
	}
	ch <- prometheus.MustNewConstMetric(workers, prometheus.GaugeValue, float64(s.Fleet.Workers))
	ch <- prometheus.MustNewConstMetric(granted, prometheus.GaugeValue, has)
}
