package metrics_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/serve/metrics"
)

// Namespaces without a label of their own are reported as one, with the highest value of any of them.
func TestCells(t *testing.T) {
	t.Parallel()
	cell := func() metrics.Cell {
		return metrics.Cell{Name: "eu", Leads: true, Missing: 1, Others: 2, Contact: time.Now(), Shares: []metrics.CellShare{
			{Share: 0.5, Ratio: 1.5, Admitted: 1}, {Namespace: "x", Share: 0.9, Ratio: 1, Admitted: 2.5}, {Namespace: "y", Share: 0.25, Ratio: 3, Admitted: 1},
		}}
	}
	for namespaces, want := range map[int][]string{
		0: {`weir_cell_share{cell="eu"} 0.9`, `weir_cell_over_admission_ratio{cell="eu"} 3`, `weir_cell_leads{cell="eu"} 1`, `weir_cell_missing{cell="eu"} 1`, `weir_cell_foreign_processes{cell="eu"} 2`, `weir_cell_admitted_ratio{cell="eu"} 2.5`},
		1: {`weir_cell_share{cell="eu",namespace="y"} 0.25`, `weir_cell_share{cell="eu",namespace="other"} 0.9`, `weir_cell_over_admission_ratio{cell="eu",namespace="other"} 1.5`, `weir_cell_admitted_ratio{cell="eu",namespace="other"} 2.5`},
		2: {`weir_cell_admitted_ratio{cell="eu",namespace="x"} 2.5`, `weir_cell_admitted_ratio{cell="eu",namespace="other"} 1`},
	} {
		r := setup(t, metrics.Config{Namespaces: namespaces})
		r.m.Register(func(s *metrics.Scrape) { cell().Report(s) })
		lines := r.scrape()
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("%d namespaces: no %s", namespaces, w)
			}
		}
	}
}
