// Package purge removes what a namespace holds.
package purge

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Namespace is a namespace whose contents are removed.
type Namespace struct {
	Store    store.Store
	Usage    store.Usage // nil if the store keeps none
	Policies *policy.Namespace
	Seal     func(context.Context, []store.State) error // seals buckets
	ID       string                                     // the opaque id
}

// Contents deletes all records except audit events, seals the buckets, empties the balances and forgets the usage.
func (n *Namespace) Contents(ctx context.Context) error {
	for _, kind := range store.Kinds {
		if kind == store.KindAudit || kind == store.KindAuditHead {
			continue
		}
		if err := n.Policies.RemoveAll(ctx, store.Query{Namespace: n.ID, Kind: kind}, nil); err != nil {
			return err
		}
	}
	seal := func(states []store.State) error {
		if err := n.Seal(ctx, states); err != nil {
			return err
		}
		return n.empty(ctx, states)
	}
	if err := n.buckets(ctx, seal); err != nil || n.Usage == nil {
		return err
	}
	return n.Usage.ForgetUsage(ctx, n.ID)
}

// empty makes the balances of sealed buckets 0, so that the store may forget them, and forgets their credits.
func (n *Namespace) empty(ctx context.Context, states []store.State) error {
	for i := range states {
		d := store.Debit{Bucket: states[i].Bucket}
		for _, l := range states[i].Limits {
			if !l.Limit.IsBalance() {
				continue
			}
			if err := n.Store.ForgetCredits(ctx, d.Bucket, l.Limit.Name); err != nil {
				return err
			}
			if l.Level != 0 {
				d.Charges = append(d.Charges, store.Charge{Limit: l.Limit, Amount: -l.Level})
			}
		}
		if len(d.Charges) == 0 {
			continue
		}
		if _, err := n.Store.Settle(ctx, store.Settle{Debits: []store.Debit{d}}); err != nil {
			return err
		}
	}
	return nil
}

// errFound ends a search.
var errFound = errors.New("found")

// Written reports whether the namespace has a bucket that is not sealed.
func (n *Namespace) Written(ctx context.Context) (bool, error) {
	err := n.buckets(ctx, func(states []store.State) error {
		if slices.ContainsFunc(states, func(st store.State) bool { return !st.Sealed() }) {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}

// buckets calls f with every page of buckets, until it fails.
func (n *Namespace) buckets(ctx context.Context, f func([]store.State) error) error {
	for q := (store.BucketQuery{Namespace: n.ID, Max: 1000}); ; {
		page, err := n.Store.Buckets(ctx, q)
		if err == nil && len(page.States) > 0 {
			err = f(page.States)
		}
		if q.After = page.Next; err != nil || q.After == "" {
			return err
		}
	}
}

// Orphan is a namespace without a name.
type Orphan struct {
	Name   string // that it had
	ID     string
	Record store.Record // of its id
}

// Orphans returns those of the id records that no name refers to. contents returns what a namespace holds.
func Orphans(
	ctx context.Context, from store.Catalog, ids []store.Record, contents func(id string) *Namespace,
) ([]Orphan, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := make([]store.Key, len(ids))
	found := make([]Orphan, len(ids))
	purged := make([]bool, len(ids))
	for i, r := range ids {
		var id record.NamespaceID
		if err := record.Decode(r, &id); err != nil {
			return nil, err
		}
		found[i], purged[i] = Orphan{id.Name, r.Key.ID, r}, id.Purged != nil
		keys[i] = record.NamespaceKey(id.Name)
	}
	names, err := from.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	var out []Orphan
	for i, r := range names.Records {
		var ns record.Namespace
		if r.Version != 0 {
			if err := record.Decode(r, &ns); err != nil {
				return nil, err
			}
		}
		is := ns.ID != found[i].ID
		if is && purged[i] {
			if is, err = contents(found[i].ID).Written(ctx); err != nil {
				return nil, err
			}
		}
		if is {
			out = append(out, found[i])
		}
	}
	return out, nil
}

// Find looks for an orphan with the id, then for orphans that had the name. used reports that a name refers to the id.
func Find(
	ctx context.Context, from store.Catalog, nameOrID string, contents func(id string) *Namespace,
) (orphans []Orphan, used bool, err error) {
	got, err := from.Get(ctx, record.NamespaceIDKey(nameOrID))
	if err != nil {
		return nil, false, err
	}
	ids := got.Records
	if ids[0].Version == 0 {
		page, err := from.List(ctx, store.Query{
			Namespace: store.Registry, Kind: store.KindNamespaceID, Parent: nameOrID,
		})
		if err != nil {
			return nil, false, err
		}
		ids = page.Records
	}
	orphans, err = Orphans(ctx, from, ids, contents)
	used = slices.ContainsFunc(ids, func(r store.Record) bool { return r.Expires.IsZero() })
	return orphans, used, err
}

// keptFor is how long the id of a purged namespace is kept at least, to find what is written under it.
const keptFor = 30 * 24 * time.Hour

// Remove removes the contents of an orphan, then marks its id.
func (n *Namespace) Remove(ctx context.Context, o *Orphan, ev record.Event) error {
	if err := n.Contents(ctx); err != nil {
		return err
	}
	var writes []store.Write
	if o.Record.Version != 0 { // as a rule: only something else than weir leaves a name without an id
		now := record.Stamp()
		w := record.Put(o.Record.Key, o.Record.Version, record.NamespaceID{Name: o.Name, Purged: &now})
		got, err := n.Store.Get(ctx, record.AuditHeadKey(o.ID))
		if err == nil {
			writes, w.Record.Expires, err = record.EndChain(got.Records[0], now.Add(keptFor))
		}
		if err != nil {
			return err
		}
		w.Record.Parent = o.Name
		writes = append(writes, w)
	}
	return n.Policies.Commit(ctx, store.Registry, []record.Event{ev}, writes...)
}
