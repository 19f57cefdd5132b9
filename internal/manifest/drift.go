package manifest

// Drift is why a live record is not as it is declared.
type Drift string

// Why a live record is not as it is declared.
const (
	Edited     Drift = "edited"     // it was changed by hand
	Removed    Drift = "removed"    // it was removed by hand
	Unapplied  Drift = "unapplied"  // the manifest was changed since, or never applied
	Unmanaged  Drift = "unmanaged"  // it is live and no manifest manages it
	Undeclared Drift = "undeclared" // the manifest manages it and declares it no more
)

// Drift says why the record of a change is not as it is declared.
func (p *Plan) Drift(c *Change) Drift {
	switch {
	case c.Action == Adopt:
		return Unmanaged
	case c.Action == Delete:
		return Undeclared
	case c.Outside:
		return Edited
	case c.Action == Create && p.Last.Hash == p.Hash:
		return Removed
	}
	return Unapplied
}

// DriftReport is how what is live differs from a manifest.
type DriftReport struct {
	Namespace string         `json:"namespace"`
	Manifest  string         `json:"manifest"`
	Drift     []DriftedState `json:"drift"`
	LeftAlone int            `json:"left_alone"` // live records that no manifest declares
}

// DriftedState is a record that is not as it is declared.
type DriftedState struct {
	Target string  `json:"target"`
	Why    Drift   `json:"why"`
	Fields []Field `json:"fields,omitempty"` // old is live, new is declared
}

// DriftOf reports on plans.
func DriftOf(plans []*Plan) []DriftReport {
	all := []DriftReport{}
	for _, p := range plans {
		d := DriftReport{p.Namespace, p.Manifest, []DriftedState{}, p.LeftAlone}
		for i := range p.Changes {
			c := &p.Changes[i]
			d.Drift = append(d.Drift, DriftedState{c.Target, p.Drift(c), c.Fields})
		}
		all = append(all, d)
	}
	return all
}
