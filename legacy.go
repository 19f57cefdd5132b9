package weir

import (
	"context"
	"time"

	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// This file holds what leaves the package, or is used only by what leaves it.

// Share is the part of a namespace's limits that this process's cell has.
type Share = policy.Share

// Shares returns the part of the limits that a cell has.
type Shares = policy.Shares

// Changed makes the limiter read records again that were changed elsewhere.
func (l *Limiter) Changed(keys ...store.Key) { l.policies.Changed(keys...) }

// ChangedWithin makes the limiter read everything in a namespace again.
func (l *Limiter) ChangedWithin(namespaceID string, within time.Duration) {
	l.policies.ChangedWithin(namespaceID, within)
}

// NamespaceIDs returns the opaque ids of the namespaces used through this limiter.
func (l *Limiter) NamespaceIDs() []string { return l.policies.NamespaceIDs() }

// SharesChanged makes the limiter ask [Config.Shares] again.
func (l *Limiter) SharesChanged() { l.policies.SharesChanged() }

// Refresh expires everything that is cached.
func (l *Limiter) Refresh() { l.policies.Expire() }

// CheckRecord reports why decisions could not use a catalog record.
func CheckRecord(r store.Record) error { return policy.Check(r) }

// MaxDepth is the maximum number of entities in a chain: an entity, its parent, and so on.
const MaxDepth = policy.MaxDepth

// CacheStats describes the caches of entities, limits and namespaces, over all namespaces.
type CacheStats struct {
	Hits, Misses uint64        // lookups of records; a decision on cached limits is one hit
	Entries      int           // cached records
	Plans        int           // cached pairs of entity and resource with their limits
	TTL          time.Duration // as configured; negative if nothing is cached
	// NearLimits is the number of limits of entities whose near-limit events are remembered as sent. NearForgotten
	// counts those that were forgotten for lack of room: their events may be sent again.
	NearLimits    int
	NearForgotten uint64
}

// CacheStats returns statistics of the caches.
func (l *Limiter) CacheStats() CacheStats {
	p := l.policies.Stats()
	s := CacheStats{Hits: p.Hits, Misses: p.Misses, Entries: p.Entries, Plans: p.Policies, TTL: p.TTL}
	s.NearLimits, s.NearForgotten = l.meter.Stats()
	return s
}

// BackstopStats describes what happens while the store does not answer, over all namespaces since the limiter was
// created.
type BackstopStats struct {
	// Breaker is the breaker's state: "closed", "open" or "half-open"; "" if the store is always called.
	Breaker string
	// Openings counts how often the limiter stopped calling the store.
	Openings uint64
	// The decisions made without the store, admitted or not, by cause.
	TimedOut, Failed, NotAsked uint64
	// Shares is the number of buckets for which this process keeps a share; Instances is the number of processes that
	// share the limits.
	Shares, Instances int
	// Admitted counts the tokens admitted from shares, over all limits; Refused counts the requests that shares
	// refused.
	Admitted, Refused uint64
	// Owing is the number of buckets with tokens admitted but not yet charged to the store. Charged and Lost count the
	// tokens that were charged to it, and those that never will be. Time has covered the rest.
	Owing         int
	Charged, Lost uint64
}

// BackstopStats returns statistics of what happens while the store does not answer.
func (l *Limiter) BackstopStats() BackstopStats {
	s := l.outage.Stats()
	return BackstopStats{
		Breaker: s.Breaker, Openings: s.Openings, TimedOut: s.TimedOut, Failed: s.Failed, NotAsked: s.NotCalled,
		Shares: s.Shares, Instances: s.Instances, Admitted: s.Admitted, Refused: s.Refused,
		Owing: s.Owing, Charged: s.Charged, Lost: s.Lost,
	}
}

// core is what manages limits.
type core struct {
	store    store.Store
	usage    store.Usage
	policies *policy.Namespace
}

type space struct{ id string }

func (l *Limiter) space(ctx context.Context, _ int64) (space, error) {
	id, err := l.namespaceID(ctx)
	return space{id}, err
}

func (l *Limiter) admin() *core { return &core{l.store, parts.Of(l).Usage, l.policies} }

func (c *core) elapsed() int64 { return 0 }

func (c *core) commit(ctx context.Context, space string, events []event, writes ...store.Write) error {
	all := make([]record.Event, len(events))
	for i, e := range events {
		all[i] = record.Event{Action: e.action, Subject: e.subject, Before: e.before, After: e.after}
	}
	return c.policies.Commit(ctx, space, all, writes...)
}

func (c *core) retry(ctx context.Context, what string, try func() error) error {
	return policy.Retry(ctx, what, try)
}

func (c *core) call(ctx context.Context, _ string, f func(context.Context) error) error {
	return f(ctx)
}

// get reads one record. If it does not exist, its Version is 0.
func (c *core) get(ctx context.Context, key store.Key) (store.Record, error) {
	rs, err := c.getAll(ctx, key)
	if err != nil {
		return store.Record{}, err
	}
	return rs[0], nil
}

func (c *core) getAll(ctx context.Context, keys ...store.Key) ([]store.Record, error) {
	got, err := c.store.Get(ctx, keys...)
	return got.Records, err
}

func (c *core) list(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Max < 0 {
		return store.Page{}, configErr("max", "must not be negative: %d", q.Max)
	}
	return c.store.List(ctx, q)
}

// firstOf returns the first of joined errors.
func firstOf(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()[0]
	}
	return err
}
