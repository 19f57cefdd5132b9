package manifest

// Drift says why a live record is not as declared.
type Drift string

// The reasons for drift.
const (
	Edited     Drift = "edited"     // changed by hand
	Removed    Drift = "removed"    // removed by hand
	Unapplied  Drift = "unapplied"  // the manifest changed since it was applied, or was never applied
	Unmanaged  Drift = "unmanaged"  // live, but no manifest manages it
	Undeclared Drift = "undeclared" // managed by the manifest, but no longer declared
)

// Drift returns why the record of a change is not as declared.
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

// DriftReport lists how the live records differ from a manifest.
type DriftReport struct {
	Namespace string         `json:"namespace"`
	Manifest  string         `json:"manifest"`
	Drift     []DriftedState `json:"drift"`
	LeftAlone int            `json:"left_alone"` // live records that no manifest declares
}

// DriftedState is a record that is not as declared.
type DriftedState struct {
	Target string  `json:"target"`
	Why    Drift   `json:"why"`
	Fields []Field `json:"fields,omitempty"` // old is live, new is declared
}

// DriftOf returns the drift reports of plans.
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
