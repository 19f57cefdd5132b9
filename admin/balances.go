package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy/prepaid"
	"github.com/weirlimits/weir/store"
)

// Balances tops up balances, which are limits that spend prepaid credits, and shows what is left of them.
type Balances struct{ catalog }

// BalanceKey names a balance: that of an entity on a resource, a group ([weir.GroupResource]) or [weir.TotalResource].
type BalanceKey = prepaid.Key

// Balance is what an entity has left of prepaid credits, in tokens: Credited - Debited + Returned. These three count
// from the birth of its bucket, which a store may forget at a balance of 0, or since an item made room for overrides.
type Balance struct {
	BalanceKey
	Available int64     `json:"available"` // negative in debt
	Credited  int64     `json:"credited"`
	Debited   int64     `json:"debited"`
	Returned  int64     `json:"returned"`
	Removed   bool      `json:"removed,omitempty"` // the limit is not in force: nothing is debited
	At        time.Time `json:"at,omitzero"`       // of the last change of the bucket
}

// Credit is a top-up of a balance.
type Credit struct {
	BalanceKey        // without a Resource, on [weir.TotalResource]
	Amount     int64  // tokens; at least 1, at most [weir.MaxTokens]
	ID         string // such as the number of an invoice; belongs to this balance and amount for ever
}

// CreditError reports that a credit with this ID was made with another amount. Nothing was changed.
type CreditError struct {
	ID         string
	Have, Want int64 // tokens: what was credited, and what was to be
}

// Error names the ID and both amounts.
func (e *CreditError) Error() string {
	return fmt.Sprintf("credit %q was made with %d tokens, not %d: give another credit an id of its own",
		e.ID, e.Have, e.Want)
}

// Is reports whether target is [weir.ErrExists].
func (e *CreditError) Is(target error) bool { return target == weir.ErrExists }

// Add adds tokens to a balance, once for each ID, across all processes and for ever, and returns it. Repeated is set if
// the credit had been made before. After an error that leaves open whether it was made, repeat it. Requests are
// admitted at once, on DynamoDB by other processes after some 100 ms.
//
// The audit event is written right after the credit, once for each ID. If the process ends in between, there is none
// until the credit is repeated. To take credits back, debit them ([weir.Limiter.Adjust]).
//
// Errors: [weir.ErrNotFound] if no such balance is in force, [*CreditError].
func (s *Balances) Add(ctx context.Context, c Credit) (b Balance, repeated bool, err error) {
	c.Resource = cmp.Or(c.Resource, weir.TotalResource)
	space, err := s.space(ctx)
	if err != nil {
		return b, false, err
	}
	e := prepaid.Entry{Key: c.BalanceKey, Amount: c.Amount, ID: c.ID}
	repeated, err = prepaid.Credit(ctx, s.parts.Store, s.parts.Policies, space, e)
	if other, ok := errors.AsType[*store.CreditError](err); ok {
		err = &CreditError{other.ID, other.Have / 1000, other.Want / 1000}
	}
	if err != nil {
		return b, false, publicError(err)
	}
	b, err = s.get(ctx, c.BalanceKey)
	return b, repeated, err
}

func (s *Balances) get(ctx context.Context, k BalanceKey) (Balance, error) {
	bucket, _, err := (*Buckets)(s).find(ctx, k.Entity, k.Resource)
	for _, b := range balancesOf(&bucket) {
		if b.BalanceKey == k {
			return b, err
		}
	}
	return Balance{BalanceKey: k}, err // it was removed since, and is 0
}

// balancesOf returns the balances of a bucket.
func balancesOf(b *Bucket) (all []Balance) {
	for _, l := range b.Limits {
		if l.Limit.Balance {
			k := BalanceKey{Entity: b.Entity, Resource: b.Resource, Limit: l.Limit.Name}
			credited := l.Available + l.Debited - l.Returned
			all = append(all, Balance{k, l.Available, credited, l.Debited, l.Returned, l.Removed, b.At.UTC()})
		}
	}
	return all
}

// BalanceQuery selects the balances of an entity, on a resource and with a name unless these are empty.
type BalanceQuery struct {
	BalanceKey
	After string // Next of the previous page
	Max   int    // maximum number of buckets read; 0 means 100, more than 1,000 means 1,000
}

// List returns the balances of an entity: those in force on the total, or on the resource of the query, and all that
// the store has.
func (s *Balances) List(ctx context.Context, query BalanceQuery) (Page[Balance], error) {
	if err := checkID("entity", query.Entity); err != nil {
		return Page[Balance]{}, err
	}
	page, err := (*Buckets)(s).List(ctx, BucketQuery{query.Entity, query.Resource, query.After, query.Max})
	if err == nil && query.After == "" { // the store need not have one yet
		var b Bucket
		b, _, err = (*Buckets)(s).find(ctx, query.Entity, cmp.Or(query.Resource, weir.TotalResource))
		if b.ID == 0 {
			page.Items = append([]Bucket{b}, page.Items...)
		}
	}
	out := Page[Balance]{Next: page.Next}
	for i := range page.Items {
		out.Items = append(out.Items, balancesOf(&page.Items[i])...)
	}
	out.Items = slices.DeleteFunc(out.Items, func(b Balance) bool {
		return query.Limit != "" && b.Limit != query.Limit
	})
	return out, err
}

// Credited is a credit that was made, from the audit log.
type Credited struct {
	prepaid.Entry
	At        time.Time `json:"at"`
	Principal string    `json:"principal"` // who made it; see [WithPrincipal]
}

// History returns the credits of a balance, newest first: those of the time of [weir.Config.AuditRetention]. Without a
// Resource, the balance is that on [weir.TotalResource].
func (s *Balances) History(ctx context.Context, query BalanceQuery) (Page[Credited], error) {
	query.Resource = cmp.Or(query.Resource, weir.TotalResource)
	space, err := s.space(ctx, publicError(query.Check()))
	if err != nil {
		return Page[Credited]{}, err
	}
	return pageOf(ctx, s.catalog, store.Query{
		Namespace: space, Kind: store.KindAudit, Sub: query.Subject(), Reverse: true,
		After: query.After, Max: query.Max,
	}, func(r store.Record) (*Credited, error) {
		line, e, err := prepaid.EntryOf(r)
		return &Credited{e, line.At, line.Principal}, err
	})
}
