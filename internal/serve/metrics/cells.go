package metrics

import (
	"cmp"
	"slices"
	"time"
)

// Cell is the state of a process's cell among the others, as of its last contact with them.
type Cell struct {
	Name    string
	Leads   bool      // this process divides the limits among the cells
	Contact time.Time // with the registry of cells
	Missing int       // cells that have not been heard from
	Others  int       // processes of another installation that use the cell's name
	// Shares holds the shares of each namespace that has its own; "" stands for the others.
	Shares []CellShare
}

// CellShare is a cell's share of a namespace's limits. 1 is the whole.
type CellShare struct {
	Namespace string
	Share     float64 // of this cell
	Ratio     float64 // of all cells together, at most
	Admitted  float64 // the largest part of a limit recently admitted by all cells together; at least 1
}

// Report adds the metrics of the cell.
func (c Cell) Report(s *Scrape) {
	cell := []string{"cell", c.Name}
	s.gauge("weir.cell.leads", "1 in the process that divides the limits among the cells.", yes(c.Leads, cell...))
	s.gauge("weir.cell.missing", "Cells that have not been heard from.", value(c.Missing, cell...))
	s.gauge("weir.cell.foreign.processes", "Processes of another installation, with another store, that use this "+
		"cell's name.", value(c.Others, cell...))
	if !c.Contact.IsZero() {
		s.gauge("weir.cell.contact.age.seconds", "Time since the registry of cells was last read.",
			value(s.now.Sub(c.Contact).Seconds(), cell...))
	}
	var shares, ratios, admitted []point
	for _, sh := range labeled(c.Shares, s.namespaces) {
		labels := cell
		if s.namespaces > 0 {
			labels = []string{"cell", c.Name, "namespace", sh.Namespace}
		}
		shares = append(shares, value(sh.Share, labels...))
		ratios = append(ratios, value(sh.Ratio, labels...))
		admitted = append(admitted, value(sh.Admitted, labels...))
	}
	s.gauge("weir.cell.share", "The cell's share of the limits; 1 is the whole. The largest of several namespaces.",
		shares...)
	s.gauge("weir.cell.over.admission.ratio", "How much of the limits all cells together may be admitting; 1 is the "+
		"whole. The highest of several namespaces.", ratios...)
	s.gauge("weir.cell.admitted.ratio", "How much of a limit all cells together have recently admitted, for the "+
		"bucket with the most; 1 is the limit, or less. The highest of several namespaces.", admitted...)
}

// labeled returns the given number of namespaces, those with the highest ratios, which get a label value of their own,
// and the rest as one.
func labeled(all []CellShare, most int) []CellShare {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b CellShare) int {
		return cmp.Or(cmp.Compare(max(b.Ratio, b.Admitted), max(a.Ratio, a.Admitted)),
			cmp.Compare(a.Namespace, b.Namespace))
	})
	var own []CellShare
	rest := CellShare{Namespace: other}
	for i, sh := range all {
		if sh.Namespace != "" && len(own) < most {
			own = append(own, sh)
			continue
		}
		rest.Share, rest.Ratio, rest.Admitted = max(rest.Share, all[i].Share), max(rest.Ratio,
			all[i].Ratio), max(rest.Admitted, all[i].Admitted)
	}
	return append(own, rest)
}
