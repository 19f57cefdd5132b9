package kit

import (
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
)

// DoctorView is the result of checking a store, as printed.
type DoctorView struct {
	Store    secret.Address   `json:"store"`
	OK       bool             `json:"ok"`
	Findings []stores.Finding `json:"findings"`
}

// Findings prints findings as a table.
func Findings(a *Run, view *DoctorView) {
	t := &term.Table{Header: []string{"", "WHAT", "FOUND", "TO DO"}}
	for _, f := range view.Findings {
		mark := "ok"
		if !f.OK {
			mark = a.Out.Bad("no")
		}
		t.Rows = append(t.Rows, []string{mark, f.Name, f.Detail, f.Remedy})
	}
	a.Out.Table(t)
}
