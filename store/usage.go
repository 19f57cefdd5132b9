package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Usage is implemented by stores that keep usage: what was spent and refused, by hour, day and month. A store reads the
// counters of its own buckets; what only the deciding process has is passed to Count.
//
// Both are readings of counters that only grow under one id. A store keeps the highest reading of each counter, and
// books the increase. A reading that arrives twice, late or out of order therefore changes nothing, and the next
// reading makes up for one that never arrives. Writing usage does not raise an epoch.
type Usage interface {
	// Count takes readings of a process's own counters. After an error they may or may not have been counted, and must
	// be passed again.
	Count(ctx context.Context, readings ...Reading) error

	// Usage lists windows by start, ID and Sub, with everything debited so far. It returns [ErrNoUsage] if usage is
	// booked by a separate reader and it is known that none runs.
	Usage(ctx context.Context, query UsageQuery) (UsagePage, error)

	// ForgetUsage removes all windows of a namespace. The counts of the whole store stay.
	ForgetUsage(ctx context.Context, namespace string) error
}

// Window is a type of window: a UTC hour, day or month.
type Window string

// The types of windows.
const (
	Hourly  Window = "hourly"
	Daily   Window = "daily"
	Monthly Window = "monthly"
)

// Windows lists the types of windows, the shortest first.
var Windows = []Window{Hourly, Daily, Monthly}

// ParseWindows reads types of windows separated by commas, such as daily,monthly. It returns nil if text is empty.
func ParseWindows(text string) (windows []Window, err error) {
	if text == "" {
		return nil, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		w := Window(strings.TrimSpace(name))
		if !slices.Contains(Windows, w) {
			return nil, fmt.Errorf("%q is not hourly, daily or monthly, or several of them separated by commas", w)
		}
		windows = append(windows, w)
	}
	return windows, nil
}

// Start returns the start of the window that contains t, in UTC.
func (w Window) Start(t time.Time) time.Time {
	t = t.UTC()
	year, month, day := t.Date()
	switch w {
	case Monthly:
		return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC)
	case Daily:
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(year, month, day, t.Hour(), 0, 0, 0, time.UTC)
	}
}

// Next returns the start of the window after the one that starts at start.
func (w Window) Next(start time.Time) time.Time {
	switch w {
	case Monthly:
		return start.AddDate(0, 1, 0)
	case Daily:
		return start.AddDate(0, 0, 1)
	default:
		return start.Add(time.Hour)
	}
}

// Figures are the counts of a window. Amounts are in millitokens.
type Figures struct {
	Requests      int64 // admitted takes of a bucket
	Debited       int64 // charged, whether forced or not
	Returned      int64 // given back
	Peak          int64 // the most that one bucket debited in one minute
	Refused       int64 // refused requests; for a limit, those that it refused
	RefusedTokens int64 // amounts that they requested
	Adjustments   int64 // changes of what a lease holds
	Degraded      int64 // requests admitted because the store did not answer
	WouldRefuse   int64 // for a limit in shadow: requests that it would have refused, whether they were admitted or not
	WouldTokens   int64 // amounts that they requested
}

// Consumed returns what was debited less what was given back. It is negative if more came back than was debited.
func (f *Figures) Consumed() int64 { return f.Debited - f.Returned }

// LimitFigures are the figures of one limit. With Limit "", they are those of the bucket as a whole: Requests, Refused
// and Degraded.
type LimitFigures struct {
	Limit string
	Figures
}

// MergeFigures adds up two lists of figures, both ordered by limit. Peaks do not add up: the higher one counts.
func MergeFigures(counts, more []LimitFigures) []LimitFigures {
	for i := range more {
		m := &more[i]
		at, found := slices.BinarySearchFunc(counts, m.Limit, func(c LimitFigures, limit string) int {
			return strings.Compare(c.Limit, limit)
		})
		if !found {
			counts = slices.Insert(counts, at, *m)
			continue
		}
		c := &counts[at].Figures
		*c = Figures{
			Requests: c.Requests + m.Requests, Debited: c.Debited + m.Debited, Returned: c.Returned + m.Returned,
			Peak: max(c.Peak, m.Peak), Refused: c.Refused + m.Refused, RefusedTokens: c.RefusedTokens + m.RefusedTokens,
			Adjustments: c.Adjustments + m.Adjustments, Degraded: c.Degraded + m.Degraded,
			WouldRefuse: c.WouldRefuse + m.WouldRefuse, WouldTokens: c.WouldTokens + m.WouldTokens,
		}
	}
	return counts
}

// Reading is the state of a process's counters for a bucket at one time.
type Reading struct {
	Bucket Bucket
	Source string    // the process; never ""
	ID     uint64    // of the counters' birth; unique within the process, and greater than earlier ones
	At     time.Time // of the last change
	Counts []LimitFigures
}

// UsageOf is what the windows of a record are about, and thereby what ID and Sub mean.
type UsageOf byte

// The subjects of usage.
const (
	OfBucket    UsageOf = 'b' // ID: the entity, Sub: the resource
	OfChildren  UsageOf = 'c' // all descendants of an entity. ID: the entity, Sub: the resource
	OfResource  UsageOf = 'r' // ID: the resource
	OfNamespace UsageOf = 'n'
	OfStore     UsageOf = 's' // in namespace Registry
)

// UsageRecord is one window of one subject. Counts are ordered by limit. Rollups have no Peak.
type UsageRecord struct {
	ID, Sub string
	Window  Window
	Start   time.Time // UTC
	Counts  []LimitFigures
}

// UsageQuery selects windows of one type that start at From or later, and before To. Empty ID and Sub select all.
type UsageQuery struct {
	Namespace string
	Of        UsageOf
	ID, Sub   string
	Window    Window
	From, To  time.Time
	Known     bool   // what the store has taken in already is enough; later pages always work this way
	After     string // the cursor of the previous page of the same query
	Max       int    // maximum number of windows; 0 means 100, more than 1,000 means 1,000
}

// UsagePage is one page of windows. Next is "" on the last page.
type UsagePage struct {
	Records []UsageRecord
	Next    string
}

// Retention is how long windows are kept after their end. Zero means the default, negative means forever. The defaults
// below are those of most stores; a store that keeps windows for a shorter time documents that.
type Retention struct {
	Hourly  time.Duration // defaults to 90 days
	Daily   time.Duration // defaults to 2 years
	Monthly time.Duration // defaults to forever
}
