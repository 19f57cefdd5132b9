package metrics

import (
	"cmp"
	"slices"
	"time"
)

// Cell is how a process's cell stands among the others, as of its last contact with them.
type Cell struct {
	Name    string
	Leads   bool      // this process divides the limits
	Contact time.Time // with the registry of cells
	Missing int       // cells that have not been heard of
	Others  int       // processes of another installation that use the cell's name
	// Shares are of each namespace that has its own; "" stands for the others.
	Shares []CellShare
}

// CellShare is what a cell has of a namespace's limits. 1 is the whole.
type CellShare struct {
	Namespace string
	Share     float64 // of this cell
	Ratio     float64 // of all cells together, as much as they may be going by
	Admitted  float64 // of a limit, by all cells together, lately; at least 1
}

// WatchCell has a cell among the figures. It is asked with each scrape.
func (m *Metrics) WatchCell(f func() Cell) { m.cell.Store(&f) }

// cells adds how the cell stands.
func (m *Metrics) cells(s *scrape) {
	f := m.cell.Load()
	if f == nil {
		return
	}
	c := (*f)()
	cell := []string{"cell", c.Name}
	var leads float64
	if c.Leads {
		leads = 1
	}
	s.gauge("weir.cell.leads", "1 in the process that divides the limits among the cells.", point[float64]{leads, cell})
	s.gauge("weir.cell.missing", "Cells that have not been heard of.", point[float64]{float64(c.Missing), cell})
	s.gauge("weir.cell.foreign.processes", "Processes of another installation, with another store, that use the cell's name.", point[float64]{float64(c.Others), cell})
	if !c.Contact.IsZero() {
		s.gauge("weir.cell.contact.age.seconds", "How long ago the registry of cells was read last.", point[float64]{s.now.Sub(c.Contact).Seconds(), cell})
	}
	var shares, ratios, admitted []point[float64]
	for _, sh := range m.toldApart(c.Shares) {
		labels := cell
		if m.cfg.Namespaces > 0 {
			labels = []string{"cell", c.Name, "namespace", sh.Namespace}
		}
		shares = append(shares, point[float64]{sh.Share, labels})
		ratios = append(ratios, point[float64]{sh.Ratio, labels})
		admitted = append(admitted, point[float64]{sh.Admitted, labels})
	}
	s.gauge("weir.cell.share", "The cell's share of the limits: 1 is the whole. Of several namespaces, the largest.", shares...)
	s.gauge("weir.cell.over.admission.ratio", "How much of the limits all cells may be admitting together: 1 is the whole. Of several namespaces, the most.", ratios...)
	s.gauge("weir.cell.admitted.ratio", "How much of a limit all cells together have admitted lately, of the bucket with the most: 1 is the limit, or less. Of several namespaces, the most.", admitted...)
}

// toldApart returns as many as have a label value of their own, those with the highest ratios first, and the rest as one.
func (m *Metrics) toldApart(all []CellShare) []CellShare {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b CellShare) int {
		return cmp.Or(cmp.Compare(max(b.Ratio, b.Admitted), max(a.Ratio, a.Admitted)), cmp.Compare(a.Namespace, b.Namespace))
	})
	var told []CellShare
	rest := CellShare{Namespace: other}
	for i, sh := range all {
		if sh.Namespace != "" && len(told) < m.cfg.Namespaces {
			told = append(told, sh)
			continue
		}
		rest.Share, rest.Ratio, rest.Admitted = max(rest.Share, all[i].Share), max(rest.Ratio, all[i].Ratio), max(rest.Admitted, all[i].Admitted)
	}
	return append(told, rest)
}
