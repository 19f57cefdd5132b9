package store

import (
	"context"
	"time"
)

// Usage is implemented by stores that keep usage: what was spent and refused, by hour, day and month. A store reads its
// own buckets' counters; what only the deciding process knows it is told with Count.
//
// Both are readings of counters that only grow under one id. A store keeps the highest reading of each, and books what
// is new in it, so that a reading which comes twice, late or out of order changes nothing, and one that never comes is
// made up by the next. Writing usage raises no epoch.
type Usage interface {
	// Count hands in readings of a process's own counters. After an error they may or may not be counted, and are to
	// be handed in again.
	Count(ctx context.Context, readings ...Reading) error

	// Usage lists windows by their start, ID, Sub, with all that was debited until now. It is [ErrNoUsage] where
	// somebody else has to book usage, and it is known that nobody does.
	Usage(ctx context.Context, query UsageQuery) (UsagePage, error)

	// TopUsage adds up the windows of each ID and returns those with most, first. It holds no more than query.Max of
	// them in memory. Errors are as of Usage.
	TopUsage(ctx context.Context, query TopQuery) ([]UsageRecord, error)

	// ForgetUsage removes all windows of a namespace. What the whole store has counted stays.
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

// Figures are what is counted. Amounts are millitokens.
type Figures struct {
	Requests      int64 // admitted takes of a bucket
	Debited       int64 // charged, forced or not
	Returned      int64 // given back
	Peak          int64 // the most that was debited in one minute, of one bucket
	Refused       int64 // refused requests; of a limit, those that it refused
	RefusedTokens int64 // what these asked for
	Adjustments   int64 // changes of what a lease holds
	Degraded      int64 // requests admitted because the store did not answer
	WouldRefuse   int64 // of a limit in shadow: requests that it would have refused, whatever became of them
	WouldTokens   int64 // what these asked for
}

// Consumed is what was debited less what was given back. It is negative where more came back than was debited.
func (f *Figures) Consumed() int64 { return f.Debited - f.Returned }

// LimitFigures are the figures of one limit, or with Limit "" those that concern the bucket as a whole: Requests,
// Refused and Degraded.
type LimitFigures struct {
	Limit string
	Figures
}

// Reading is what a process's counters for a bucket were at one time.
type Reading struct {
	Bucket Bucket
	Source string    // the process; never ""
	ID     uint64    // of the counters' birth, unique within the process and greater than those before
	At     time.Time // of the last change
	Counts []LimitFigures
}

// UsageOf says what the windows of a record are about, and what ID and Sub are.
type UsageOf byte

// What usage is kept of.
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

// UsageQuery selects windows of one type that start from From on and before To. Empty ID and Sub select all.
type UsageQuery struct {
	Namespace string
	Of        UsageOf
	ID, Sub   string
	Window    Window
	From, To  time.Time
	Known     bool   // what the store has taken in already is enough; a page after the first is so
	After     string // the cursor of the page before, of the same query
	Max       int    // at most so many; 0 means 100, more than 1,000 is 1,000
}

// UsagePage is one page of windows. Next is "" on the last.
type UsagePage struct {
	Records []UsageRecord
	Next    string
}

// TopQuery ranks subjects by what they consumed of Limit, or by their requests if it is "".
type TopQuery struct {
	Namespace string
	Of        UsageOf
	Sub       string // only of these
	Window    Window
	From, To  time.Time
	Limit     string
	Max       int // at most so many; 0 means 100, more than 1,000 is 1,000
}

// Retention says how long windows are kept after their end. Zero is the default, negative for ever.
type Retention struct {
	Hourly  time.Duration // defaults to 90 days
	Daily   time.Duration // defaults to 2 years
	Monthly time.Duration // defaults to for ever
}
