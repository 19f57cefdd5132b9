package load

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// Meter counts the calls that decisions make to a store in this process.
type Meter struct{ calls, reads atomic.Uint64 }

// Observer returns the observer to install in the limiter.
func (m *Meter) Observer() *weir.Observer {
	return &weir.Observer{Called: func(_ context.Context, e weir.CalledEvent) {
		if n := m.of(e.Op); n != nil {
			n.Add(1)
		}
	}}
}

func (m *Meter) of(op string) *atomic.Uint64 {
	switch op {
	case "take", "settle":
		return &m.calls
	case "get", "peek", "list", "buckets":
		return &m.reads
	}
	return nil
}

// Measures returns the number of calls, and the totals that the store reports.
func (m *Meter) Measures(st store.Store) map[string]float64 {
	all := map[string]float64{"calls": float64(m.calls.Load()), "reads": float64(m.reads.Load())}
	if measured, ok := st.(store.Measured); ok {
		for _, me := range measured.Measures() {
			if me.Total {
				all[me.Name] = me.Value
			}
		}
	}
	return priced(all)
}

// priced adds the write units of a table: a bucket's item is smaller than a kilobyte, and a write whose condition fails
// costs as much as one that is applied. calls then counts these writes: takes share them, and a remembered refusal
// makes none.
func priced(all map[string]float64) map[string]float64 {
	if applied, ok := all["writes_applied"]; ok {
		all["wcu"] = applied + all["writes_denied"]
		all["calls"] = all["wcu"] + all["writes_failed"]
	}
	return all
}

// Measures reads the totals of the server's store from its metrics; nil if it does not report them. They include all
// clients of the server, not only this run.
func (t *HTTP) Measures() map[string]float64 {
	code, text, err := t.send(context.Background(), http.MethodGet, "/metrics", "", nil)
	if err != nil || code != http.StatusOK {
		return nil
	}
	return storeTotals(string(text))
}

func storeTotals(text string) map[string]float64 {
	all := make(map[string]float64)
	var m Meter
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "weir_store_")
		if !ok {
			continue
		}
		series, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(series, "{")
		if name == "call_duration_seconds_count" {
			_, op, _ := strings.Cut(labels, `op="`)
			op, _, _ = strings.Cut(op, `"`)
			if to := m.of(op); to != nil {
				to.Add(uint64(n))
			}
			continue
		}
		if total, ok := strings.CutSuffix(name, "_total"); ok && labels == "" {
			all[total] = n
		}
	}
	maps.Copy(all, map[string]float64{"calls": float64(m.calls.Load()), "reads": float64(m.reads.Load())})
	return priced(all)
}
