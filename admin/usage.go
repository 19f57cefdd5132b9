package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/store"
)

// Window is a type of usage window: an hour, a day or a month, all UTC.
type Window string

// The types of windows.
const (
	Hourly  Window = "hourly"
	Daily   Window = "daily"
	Monthly Window = "monthly"
)

func (w Window) validate() error {
	switch w {
	case Hourly, Daily, Monthly:
		return nil
	}
	return configErr("window", "must be hourly, daily or monthly: %q", string(w))
}

// Start returns the start of the window that t lies in.
func (w Window) Start(t time.Time) time.Time { return store.Window(w).Start(t) }

// Next returns the start of the window after the one that starts at start.
func (w Window) Next(start time.Time) time.Time { return store.Window(w).Next(start) }

// UsageBy is how usage is grouped.
type UsageBy string

// The groupings of usage.
const (
	ByEntity    UsageBy = "entity"    // each entity on each resource
	ByParent    UsageBy = "parent"    // each entity that has children: everything below it, and its own
	ByResource  UsageBy = "resource"  // each resource, over all entities
	ByLimit     UsageBy = "limit"     // each limit name, over the whole namespace; only for rankings
	ByNamespace UsageBy = "namespace" // the whole namespace
	ByStore     UsageBy = "store"     // all namespaces together
)

var usageOfs = map[UsageBy]store.UsageOf{
	ByEntity: store.OfBucket, ByParent: store.OfChildren, ByResource: store.OfResource,
	ByNamespace: store.OfNamespace, ByLimit: store.OfNamespace, ByStore: store.OfStore,
}

// Usage is what was counted in one window. Counts of refusals (also in shadow), adjustments and degraded decisions come
// from the processes that made the decisions, some seconds late. All others are read from the buckets and are exact.
type Usage struct {
	Window   Window       `json:"window"`
	Start    time.Time    `json:"start"`              // UTC; for a sum over several windows, the start of the first
	Entity   string       `json:"entity,omitempty"`   // when grouped by parent, the parent
	Resource string       `json:"resource,omitempty"` // "" for sums over all
	Requests int64        `json:"requests"`           // admitted
	Refused  int64        `json:"refused"`            // requests
	Degraded int64        `json:"degraded"`           // admitted because the store did not answer
	Limits   []LimitUsage `json:"limits"`             // by name
	Own      *OwnUsage    `json:"own,omitempty"`      // only when grouped by parent
}

// OwnUsage is what a parent's own buckets have counted, apart from the entities below it. If these cascade, what they
// spent of a limit that the parent has too is in both.
type OwnUsage struct {
	Requests int64        `json:"requests"`
	Limits   []LimitUsage `json:"limits"`
}

// LimitUsage is what was counted for one limit, or for all limits of the same name. Everything except counts of
// requests is in tokens, rounded down.
type LimitUsage struct {
	Limit         string `json:"limit"`
	Consumed      int64  `json:"consumed"` // debited less returned; negative if more came back than was spent
	Debited       int64  `json:"debited"`
	Returned      int64  `json:"returned"`
	Peak          int64  `json:"peak,omitempty"` // the most that one bucket debited in one minute; not in rollups
	Refused       int64  `json:"refused"`        // requests that this limit refused
	RefusedTokens int64  `json:"refused_tokens"` // tokens that they requested
	Adjustments   int64  `json:"adjustments"`    // changes of what a lease held
	// WouldRefuse counts requests that the limit, in shadow, would have refused, whether they were admitted or not.
	// They are not included in Refused.
	WouldRefuse       int64 `json:"would_refuse,omitempty"`
	WouldRefuseTokens int64 `json:"would_refuse_tokens,omitempty"` // tokens that they requested
}

// UsageReports reads the usage that the store keeps. Its methods return [weir.ErrNoUsage] if it keeps none.
type UsageReports struct{ catalog }

// UsageQuery selects windows of one type.
type UsageQuery struct {
	By       UsageBy // defaults to ByEntity
	Entity   string  // "" selects all; when grouped by parent, the parent
	Resource string  // "" selects all
	Window   Window  // defaults to Daily
	// From and To select the windows from the one that contains From up to, but not including, To. To defaults to the
	// end of the current window; From defaults to a day, 30 days or 12 months earlier, depending on the type of window.
	From, To time.Time
	After    string // Next of the previous page; From and To must be the same
	Max      int    // maximum number of windows; 0 means 100, more than 1,000 means 1,000
}

// period fills in the defaults of a query's period, and validates it.
func period(w *Window, from, to *time.Time) error {
	*w = cmp.Or(*w, Daily)
	if err := w.validate(); err != nil {
		return err
	}
	*from, *to = meter.Period(store.Window(*w), *from, *to)
	if !from.Before(*to) {
		return configErr("from", "%s is not before %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return nil
}

// prepare validates a query and returns the store's form of it.
func (u *UsageReports) prepare(ctx context.Context, q *UsageQuery) (store.UsageQuery, error) {
	q.By = cmp.Or(q.By, ByEntity)
	of := usageOfs[q.By]
	switch {
	case u.parts.Usage == nil:
		return store.UsageQuery{}, weir.ErrNoUsage
	case of == 0 || q.By == ByLimit:
		return store.UsageQuery{}, configErr(
			"by", "must be entity, parent, resource, namespace or store: %q", string(q.By),
		)
	case q.Entity != "" && of != store.OfBucket && of != store.OfChildren:
		return store.UsageQuery{}, configErr("entity", "cannot be combined with usage by %s", q.By)
	case q.Resource != "" && (of == store.OfNamespace || of == store.OfStore):
		return store.UsageQuery{}, configErr("resource", "cannot be combined with usage by %s", q.By)
	}
	id, err := u.space(
		ctx, checkMax(q.Max), checkOptional("entity", q.Entity), checkResource(q.Resource),
		period(&q.Window, &q.From, &q.To),
	)
	if err != nil {
		return store.UsageQuery{}, err
	}
	sq := store.UsageQuery{
		Namespace: id, Of: of, ID: q.Entity, Sub: q.Resource, Window: store.Window(q.Window),
		From: q.From, To: q.To, After: q.After, Max: q.Max,
	}
	if of == store.OfResource {
		sq.ID, sq.Sub = q.Resource, ""
	}
	return sq, nil
}

// Windows returns the windows that match: what was spent, by whom, on what, and when.
func (u *UsageReports) Windows(ctx context.Context, query UsageQuery) (Page[Usage], error) {
	q, err := u.prepare(ctx, &query)
	if err != nil {
		return Page[Usage]{}, err
	}
	if q.After == "" {
		u.parts.Meter.Flush(ctx)
	}
	page, err := u.parts.Usage.Usage(ctx, q)
	if err != nil {
		return Page[Usage]{}, err
	}
	out := Page[Usage]{Items: make([]Usage, len(page.Records)), Next: page.Next}
	for i := range page.Records {
		r := &page.Records[i]
		if out.Items[i] = usageOf(query.By, r); query.By == ByParent {
			own := q
			own.Of, own.ID, own.Sub, own.From, own.To = store.OfBucket, r.ID, r.Sub, r.Start, r.Start.Add(1)
			if out.Items[i].Own, err = u.own(ctx, own); err != nil {
				return Page[Usage]{}, err
			}
		}
	}
	return out, nil
}

// own adds up what an entity's own buckets have counted.
func (u *UsageReports) own(ctx context.Context, q store.UsageQuery) (*OwnUsage, error) {
	q.Known, q.After, q.Max = true, "", 1000
	total, _, err := meter.Sum(ctx, u.parts.Usage.Usage, q)
	if err != nil {
		return nil, err
	}
	sum := usageOf(ByEntity, &store.UsageRecord{Counts: total})
	return &OwnUsage{sum.Requests, sum.Limits}, nil
}

func usageOf(by UsageBy, r *store.UsageRecord) Usage {
	u := Usage{Window: Window(r.Window), Start: r.Start, Entity: r.ID, Resource: r.Sub, Limits: []LimitUsage{}}
	if by == ByResource {
		u.Entity, u.Resource = "", r.ID
	}
	for i := range r.Counts {
		c := &r.Counts[i]
		if c.Limit == "" {
			u.Requests, u.Refused, u.Degraded = c.Requests, c.Refused, c.Degraded
			continue
		}
		u.Limits = append(u.Limits, LimitUsage{
			Limit: c.Limit, Consumed: clock.MulDivFloor(c.Consumed(), 1, 1000), Debited: c.Debited / 1000,
			Returned: c.Returned / 1000, Peak: c.Peak / 1000, Refused: c.Refused, RefusedTokens: c.RefusedTokens / 1000,
			Adjustments: c.Adjustments, WouldRefuse: c.WouldRefuse, WouldRefuseTokens: c.WouldTokens / 1000,
		})
	}
	slices.SortFunc(u.Limits, func(a, b LimitUsage) int { return cmp.Compare(a.Limit, b.Limit) })
	return u
}
