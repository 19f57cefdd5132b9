package serve

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/serve/metrics"
)

// Namespaces without a label of their own are reported as one, with the highest value of any of them.
func TestReportCell(t *testing.T) {
	t.Parallel()
	half := cells.Whole / 2
	st := cells.Status{Leads: true, Contact: time.Now(), View: cells.View{
		Cells: []cells.CellView{
			{Name: "eu", Others: 2, Shares: cells.Shares{cells.Default: half, "x": half, "y": 2 * half}},
			{Name: "us", Missing: true, Shares: cells.Shares{cells.Default: 2 * half, "x": half, "y": 4 * half}},
		},
		Over: map[string]int64{"x": 2500}, Differ: []string{"x", "y"},
	}}
	shares := map[string]int64{cells.Default: half, "x": 9 * cells.Whole / 10, "y": half / 2}
	for namespaces, want := range map[int][]string{
		0: {`weir_cell_share{cell="eu"} 0.9`, `weir_cell_over_admission_ratio{cell="eu"} 3`, `weir_cell_leads{cell="eu"} 1`, `weir_cell_missing{cell="eu"} 1`, `weir_cell_foreign_processes{cell="eu"} 2`, `weir_cell_limits_differ{cell="eu"} 2`, `weir_cell_admitted_ratio{cell="eu"} 2.5`},
		1: {`weir_cell_share{cell="eu",namespace="y"} 0.25`, `weir_cell_share{cell="eu",namespace="other"} 0.9`, `weir_cell_over_admission_ratio{cell="eu",namespace="other"} 1.5`, `weir_cell_admitted_ratio{cell="eu",namespace="other"} 2.5`},
		2: {`weir_cell_admitted_ratio{cell="eu",namespace="x"} 2.5`, `weir_cell_admitted_ratio{cell="eu",namespace="other"} 1`},
	} {
		m := newMetrics(t, metrics.Config{Namespaces: namespaces})
		m.Register(func(s *metrics.Scrape) {
			reportCell(s, "eu", st, func(namespace string) int64 { return shares[namespace] })
		})
		lines := scrape(t, m)
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("%d namespaces: no %s", namespaces, w)
			}
		}
	}
}

// A namespace with the name of the rest counts with the rest: two series with the same labels would end every scrape.
func TestLabeledOther(t *testing.T) {
	t.Parallel()
	got := labeled([]cellShare{{metrics.Other, 0.5, 3, 1}, {"x", 0.2, 2, 1}, {cells.Default, 0.1, 1, 2}}, 2)
	if want := []cellShare{{"x", 0.2, 2, 1}, {metrics.Other, 0.5, 3, 2}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
