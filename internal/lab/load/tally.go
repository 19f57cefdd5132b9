package load

import (
	"errors"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Tally is what was counted. The tallies of the parts of a run can be merged.
type Tally struct {
	Ops       map[traffic.Op]*opTally `json:"ops"`
	Late      report.Histogram        `json:"late"`    // how long after it was due a call began
	Service   report.Histogram        `json:"service"` // from when it began
	Groups    []Counts                `json:"groups"`
	Resources []Counts                `json:"resources"`
	Windows   []*window               `json:"windows"`
	Slots     slotTally               `json:"slots,omitzero"`
	Errors    map[string]uint64       `json:"errors"`
	Missed    uint64                  `json:"missed"` // calls that were due but never begun
	Capped    bool                    `json:"capped"` // the limit of calls in flight was reached
	Elapsed   time.Duration           `json:"elapsed"`
	Measures  map[string]float64      `json:"measures"` // growth of the store's totals
}

// opTally is the counts of one operation.
type opTally struct {
	Counts
	Response report.Histogram `json:"response"` // from when it was due
}

// Counts are counts of answered calls.
type Counts struct {
	Calls   uint64 `json:"calls"`
	Refused uint64 `json:"refused"`
	Failed  uint64 `json:"failed"`
}

func (c *Counts) add(o Counts) {
	c.Calls, c.Refused, c.Failed = c.Calls+o.Calls, c.Refused+o.Refused, c.Failed+o.Failed
}

// window is what was answered in a stretch of time, without adjustments and commits.
type window struct {
	Counts
	Response report.Histogram `json:"response"`
}

func newTally(p *traffic.Plan) *Tally {
	t := &Tally{
		Ops: make(map[traffic.Op]*opTally), Late: report.Fine(), Service: report.Fine(),
		Errors:   make(map[string]uint64),
		Measures: make(map[string]float64),
		Groups:   make([]Counts, len(p.Scenario.Entities)), Resources: make([]Counts, len(p.Scenario.Resources)),
		Windows: make([]*window, (p.Length()+width(p)-1)/width(p)),
	}
	for _, op := range traffic.Ops {
		t.Ops[op] = &opTally{Response: report.Fine()}
	}
	return t
}

// check returns an error unless o is a complete tally of a part of the same run.
func (t *Tally) check(o *Tally) error {
	whole := len(o.Groups) == len(t.Groups) && len(o.Resources) == len(t.Resources) &&
		len(o.Windows) == len(t.Windows) &&
		len(o.Ops) == len(t.Ops) && o.Late.Valid() && o.Service.Valid()
	for op := range t.Ops {
		whole = whole && o.Ops[op] != nil && o.Ops[op].Response.Valid()
	}
	for _, w := range o.Windows {
		whole = whole && (w == nil || w.Response.Valid())
	}
	if !whole {
		return errors.New("the tally belongs to another run")
	}
	return nil
}

// merge adds the tally of another part of the same run.
func (t *Tally) merge(o *Tally) {
	for op, from := range o.Ops {
		t.Ops[op].add(from.Counts)
		t.Ops[op].Response.Merge(from.Response)
	}
	t.Late.Merge(o.Late)
	t.Service.Merge(o.Service)
	for i := range o.Groups {
		t.Groups[i].add(o.Groups[i])
	}
	for i := range o.Resources {
		t.Resources[i].add(o.Resources[i])
	}
	for i, w := range o.Windows {
		if w == nil {
			continue
		}
		if t.Windows[i] == nil {
			t.Windows[i] = &window{Response: report.Coarse()}
		}
		t.Windows[i].add(w.Counts)
		t.Windows[i].Response.Merge(w.Response)
	}
	for text, n := range o.Errors {
		t.failed(text, n)
	}
	for name, n := range o.Measures {
		t.Measures[name] += n
	}
	t.Slots.merge(o.Slots)
	t.Missed += o.Missed
	t.Capped = t.Capped || o.Capped
	t.Elapsed = max(t.Elapsed, o.Elapsed)
}

// maxErrors is how many error texts are counted separately.
const maxErrors = 10

func (t *Tally) failed(text string, n uint64) {
	if _, known := t.Errors[text]; !known && len(t.Errors) >= maxErrors {
		text = "others"
	}
	t.Errors[text] += n
}

const maxWindows = 120

// width is the width of a window.
func width(p *traffic.Plan) time.Duration { return report.Width(p.Length(), 0, maxWindows) }
