package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/report"
)

// Report is what the limits would have done to the log.
type Report struct {
	Source

	Limits          []weir.Limit  `json:"limits"`
	Requests        int           `json:"requests"`
	Admitted        int           `json:"admitted"`
	Refused         int           `json:"refused"`
	AdmittedPercent float64       `json:"admitted_percent"`
	TooLarge        int           `json:"too_large"`  // of the refused: larger than the burst, can never pass
	RefusedBy       []LimitCount  `json:"refused_by"` // several limits may refuse one request
	Entities        int           `json:"entities"`
	RefusedEntities int           `json:"refused_entities"`
	MostRefused     []EntityCount `json:"most_refused"`

	IntervalSeconds int64      `json:"interval_seconds"`
	Intervals       []Interval `json:"intervals"`
	Needed          []Need     `json:"needed"`
	Notes           []string   `json:"notes,omitempty"`
}

// Source is what was read.
type Source struct {
	Lines          int       `json:"lines"` // without blank ones
	Malformed      int       `json:"malformed"`
	MalformedFirst []BadLine `json:"malformed_first"` // the first few
	OutOfOrder     int       `json:"out_of_order"`    // lines that came after a later one
	From           time.Time `json:"from"`
	To             time.Time `json:"to"`
}

// LimitCount is how many requests a limit refused.
type LimitCount struct {
	Limit   string `json:"limit"`
	Refused int    `json:"refused"`
}

// EntityCount is how many requests of an entity were refused.
type EntityCount struct {
	Entity   string `json:"entity"`
	Requests int    `json:"requests"`
	Refused  int    `json:"refused"`
}

// Interval is a part of the log's time.
type Interval struct {
	Start    time.Time `json:"start"`
	Requests int       `json:"requests"`
	Refused  int       `json:"refused"`
}

// Need is the limit that would, on its own, admit a given share of the log's requests.
type Need struct {
	Percent  float64     `json:"percent"`
	Name     string      `json:"name"`
	Limit    *weir.Limit `json:"limit"` // nil: no limit that weir allows is enough
	Admitted int         `json:"admitted"`
}

func (t *tally) report() *Report {
	l := t.log
	n := len(l.entries)
	r := &Report{
		Source: Source{
			Lines: l.lines, Malformed: l.malformed, MalformedFirst: l.bad, OutOfOrder: l.outOfOrder,
			From: time.Unix(0, l.entries[0].at).UTC(), To: time.Unix(0, l.entries[n-1].at).UTC(),
		},
		Limits: t.cfg.Limits, Requests: n, Admitted: n - t.total, Refused: t.total,
		AdmittedPercent: percent(n-t.total, n), TooLarge: t.tooLarge, RefusedBy: t.refusedBy,
		Entities: len(t.requests), IntervalSeconds: int64(t.width / time.Second), Intervals: t.series,
		MostRefused: []EntityCount{},
	}
	for id, refused := range t.refused {
		if refused > 0 {
			r.RefusedEntities++
			r.MostRefused = append(r.MostRefused, EntityCount{l.entities.texts[id], t.requests[id], refused})
		}
	}
	slices.SortFunc(r.MostRefused, func(a, b EntityCount) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(a.Entity, b.Entity))
	})
	r.MostRefused = r.MostRefused[:min(t.cfg.Top, len(r.MostRefused)):len(r.MostRefused)]
	return r
}

// percent rounds down to hundredths, so that only the whole is 100.
func percent(part, whole int) float64 { return float64(int64(part)*10_000/int64(whole)) / 100 }

const maxIntervals = 72

// intervals divides a log's time into at most maxIntervals of equal width, aligned to it in UTC.
func intervals(from, to int64) (time.Duration, []Interval) {
	width := report.Width(time.Duration(to-from), time.Second, maxIntervals-1)
	start := time.Unix(0, from).UTC().Truncate(width)
	var series []Interval
	for at := start; at.UnixNano() <= to; at = at.Add(width) {
		series = append(series, Interval{Start: at})
	}
	return width, series
}
