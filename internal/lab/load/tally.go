package load

import (
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// histogram counts durations up to an hour, to within a thousandth or, if coarse, a hundredth of each.
type histogram struct{ h *hdrhistogram.Histogram }

const longest = int64(time.Hour)

func fine() histogram   { return histogram{hdrhistogram.New(100, longest, 3)} }
func coarse() histogram { return histogram{hdrhistogram.New(1000, longest, 2)} }

func (h histogram) record(d time.Duration) {
	_ = h.h.RecordValue(min(max(0, int64(d)), longest)) // always in range
}

func (h histogram) at(percentile float64) time.Duration {
	return time.Duration(h.h.ValueAtPercentile(percentile))
}

func (h histogram) count() int64 { return h.h.TotalCount() }

func (h histogram) merge(o histogram) { h.h.Merge(o.h) }

// MarshalText writes HdrHistogram's interchange format, V2.
func (h histogram) MarshalText() ([]byte, error) {
	return h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
}

// UnmarshalText reads that format.
func (h *histogram) UnmarshalText(text []byte) (err error) {
	if h.h, err = hdrhistogram.Decode(text); err != nil {
		return fmt.Errorf("read a histogram: %w", err)
	}
	return nil
}

// Tally is what was counted. The tallies of the parts of a run can be merged.
type Tally struct {
	Ops       map[Op]*opTally    `json:"ops"`
	Late      histogram          `json:"late"`    // how long after it was due a call began
	Service   histogram          `json:"service"` // from when it began
	Groups    []Counts           `json:"groups"`
	Resources []Counts           `json:"resources"`
	Windows   []*window          `json:"windows"`
	Errors    map[string]uint64  `json:"errors"`
	Missed    uint64             `json:"missed"` // calls that were due but never begun
	Capped    bool               `json:"capped"` // the limit of calls in flight was reached
	Elapsed   time.Duration      `json:"elapsed"`
	Measures  map[string]float64 `json:"measures"` // growth of the store's totals
}

// opTally is the counts of one operation.
type opTally struct {
	Counts
	Response histogram `json:"response"` // from when it was due
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

// window is what was answered in a stretch of time, without adjustments.
type window struct {
	Counts
	Response histogram `json:"response"`
}

func newTally(p *Plan) *Tally {
	t := &Tally{
		Ops: make(map[Op]*opTally), Late: fine(), Service: fine(), Errors: make(map[string]uint64),
		Measures: make(map[string]float64),
		Groups:   make([]Counts, len(p.groups)), Resources: make([]Counts, len(p.Scenario.Resources)),
		Windows: make([]*window, (time.Duration(p.Scenario.For)+p.width()-1)/p.width()),
	}
	for _, op := range ops {
		t.Ops[op] = &opTally{Response: fine()}
	}
	return t
}

// check returns an error unless o is a complete tally of a part of the same run.
func (t *Tally) check(o *Tally) error {
	whole := len(o.Groups) == len(t.Groups) && len(o.Resources) == len(t.Resources) &&
		len(o.Windows) == len(t.Windows) &&
		len(o.Ops) == len(t.Ops) && o.Late.h != nil && o.Service.h != nil
	for op := range t.Ops {
		whole = whole && o.Ops[op] != nil && o.Ops[op].Response.h != nil
	}
	for _, w := range o.Windows {
		whole = whole && (w == nil || w.Response.h != nil)
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
		t.Ops[op].Response.merge(from.Response)
	}
	t.Late.merge(o.Late)
	t.Service.merge(o.Service)
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
			t.Windows[i] = &window{Response: coarse()}
		}
		t.Windows[i].add(w.Counts)
		t.Windows[i].Response.merge(w.Response)
	}
	for text, n := range o.Errors {
		t.failed(text, n)
	}
	for name, n := range o.Measures {
		t.Measures[name] += n
	}
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
