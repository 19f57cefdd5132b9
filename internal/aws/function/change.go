package function

import (
	"encoding/json"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
)

// Change is the change to one record.
type Change struct {
	Action manifest.Action `json:"action"`
	Level  string          `json:"level"` // system, resource or entity
	// Target is the resource, ENTITY/RESOURCE for an entity's limits, the entity for itself, and "system".
	Target string           `json:"target"`
	Limits map[string]Limit `json:"limits,omitempty"` // the new limits
}

// Limit is a limit as a manifest writes it, in its shortest form.
type Limit struct {
	Capacity     int64  `json:"capacity"`
	Burst        int64  `json:"burst,omitempty"`
	RefillPeriod any    `json:"refill_period,omitempty"` // seconds, or text with a unit
	Enforce      string `json:"enforce,omitempty"`
}

func changesOf(p *manifest.Plan) []Change {
	all := make([]Change, 0, len(p.Changes))
	for i := range p.Changes {
		m := &p.Changes[i]
		c := Change{Action: m.Action, Level: "system", Target: "system"}
		switch {
		case m.Own:
			c.Level, c.Target = "entity", m.Entity
		case m.Entity != "" && m.On == "":
			c.Level, c.Target = "entity", m.Entity+"/"+weir.DefaultResource
		case m.Entity != "":
			c.Level, c.Target = "entity", m.Entity+"/"+m.On
		case m.On != "":
			c.Level, c.Target = "resource", m.On
		}
		for _, l := range m.Limits() {
			if c.Limits == nil {
				c.Limits = make(map[string]Limit)
			}
			c.Limits[l.Name] = limitOf(l)
		}
		all = append(all, c)
	}
	return all
}

func limitOf(l weir.Limit) Limit {
	out := Limit{Capacity: l.Amount}
	if l.Burst != l.Amount {
		out.Burst = l.Burst
	}
	switch {
	case l.Period == time.Minute:
	case l.Period%time.Second == 0:
		out.RefillPeriod = int64(l.Period / time.Second)
	default:
		out.RefillPeriod = manifest.PeriodText(l.Period)
	}
	if l.Enforce != weir.EnforceOn {
		out.Enforce = l.Enforce.String()
	}
	return out
}

// maxAnswer is the maximum size of a response in bytes. Lambda accepts 6 MiB, and fails on larger ones although the
// work is done.
const maxAnswer = 5 << 20

// fit shortens a response that is too large: it drops first the full plan, then changes and errors.
func (a Answer) fit() Answer {
	size := func(v any) int {
		text, err := json.Marshal(v)
		if err != nil {
			return 0 // Lambda reports why
		}
		return len(text)
	}
	if size(a) <= maxAnswer {
		return a
	}
	a.Saved = nil
	for size(a) > maxAnswer {
		n := len(a.Changes) / 2
		a.ChangesLeftOut += len(a.Changes) - n
		a.Changes = a.Changes[:n]
		if a.Errors = a.Errors[:(len(a.Errors)+1)/2]; a.Result != nil {
			r := *a.Result
			r.Failed = r.Failed[:(len(r.Failed)+1)/2]
			a.Result = &r
		}
		if n == 0 && len(a.Errors) <= 1 {
			break
		}
	}
	return a
}
