package stores

import (
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/fleet/cells"
)

// What the registry holds about a cell is judged, and each problem has a remedy.
func TestCellFindings(t *testing.T) {
	t.Parallel()
	half := cells.Shares{cells.Default: cells.Whole / 2}
	one := map[string]uint64{"a": 1}
	for name, tt := range map[string]struct {
		view     cells.View
		share    int64
		problems string // the names of the findings that are not ok
		details  map[string]string
	}{
		"well": {
			cells.View{Leader: "us", Cells: []cells.CellView{{Name: "eu", Shares: half, Instances: one}, {Name: "us"}}},
			cells.Whole / 2, "",
			map[string]string{
				"role": "active, one of 2 cells; a process of another leads", "share": "50.0 % of the limits", "processes": "1 report to the registry",
			},
		},
		"nobody leads": {
			cells.View{Cells: []cells.CellView{{Name: "eu", Shares: half, Instances: one}}},
			cells.Whole / 2, "role ",
			map[string]string{"role": "active, one of 1 cells; no process leads, so shares do not move"},
		},
		"another share in the store": {
			cells.View{Leader: "a", Cells: []cells.CellView{{Name: "eu", Shares: half, Instances: one}}},
			cells.Whole, "",
			map[string]string{"role": "active, one of 1 cells; one of its processes leads", "share": "50.0 % of the limits, and its store has 100.0 %"},
		},
		"drained": {
			cells.View{Leader: "us", Cells: []cells.CellView{{Name: "eu", Draining: true}}},
			0, "",
			map[string]string{"share": "0.0 % of the limits, as it is being drained"},
		},
		"two installations": {
			cells.View{Leader: "a", Cells: []cells.CellView{{Name: "eu", Shares: half, Instances: one, Others: 2}}},
			cells.Whole / 2,
			"processes ",
			map[string]string{"processes": "1 report to the registry; 2 of another installation use the name, and admit nothing"},
		},
		"whole limits somewhere": {
			cells.View{Leader: "a", Over: map[string]int64{"team": 1500}, Cells: []cells.CellView{{Name: "eu", Shares: half, Instances: one}}},
			cells.Whole / 2, "limits ",
			map[string]string{"limits": "all cells together admitted 1.50 × a limit of team"},
		},
		"limits that differ": {
			cells.View{Leader: "a", Differ: []string{"default"}, Cells: []cells.CellView{{Name: "eu", Shares: half, Instances: one}}},
			cells.Whole / 2, "limits of cells ",
			map[string]string{"limits of cells": "differ in default"},
		},
		"not a cell": {cells.View{}, -1, "registry ", map[string]string{"registry": "knows 0 cells, and eu is none of them"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var problems strings.Builder
			found := map[string]string{}
			for _, f := range append(registered(&tt.view, "eu", tt.share), differFinding(&tt.view)) {
				found[f.Name] = f.Detail
				if !f.OK {
					problems.WriteString(f.Name + " ")
					if f.Remedy == "" {
						t.Errorf("%+v has no remedy", f)
					}
				}
			}
			if problems.String() != tt.problems {
				t.Errorf("problems %q, want %q", problems.String(), tt.problems)
			}
			for what, want := range tt.details {
				if found[what] != want {
					t.Errorf("%s: %q, want %q", what, found[what], want)
				}
			}
		})
	}
}
