package function

import (
	"encoding/json"

	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Change is the change to one record.
type Change struct {
	Action manifest.Action `json:"action"`
	Level  string          `json:"level"`  // system, plan, resource or entity
	Target string          `json:"target"` // as in [manifest.Change]
	// The new limits, by name.
	Limits map[string]strictyaml.LimitForm `json:"limits,omitempty"`
}

func changesOf(p *manifest.Plan) []Change {
	all := make([]Change, 0, len(p.Changes))
	for i := range p.Changes {
		m := &p.Changes[i]
		c := Change{Action: m.Action, Level: "system", Target: m.Target}
		switch {
		case m.Entity != "":
			c.Level = "entity"
		case m.Plan != "":
			c.Level = "plan"
		case m.Resource != "":
			c.Level = "resource"
		}
		for _, l := range m.Set {
			if c.Limits == nil {
				c.Limits = make(map[string]strictyaml.LimitForm)
			}
			c.Limits[l.Name] = strictyaml.ShortestLimit(l)
		}
		all = append(all, c)
	}
	return all
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
