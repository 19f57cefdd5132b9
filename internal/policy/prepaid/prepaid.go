// Package prepaid credits balances, and keeps changes of limits from hiding them.
package prepaid

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Key names a balance.
type Key struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"` // possibly a group or the total
	Limit    string `json:"limit"`
}

// Check reports what is wrong with a key.
func (k Key) Check() error {
	if err := record.CheckID("entity", k.Entity); err != nil {
		return err
	}
	if err := record.CheckResource("resource", k.Resource); err != nil {
		return err
	}
	return record.CheckID("limit", k.Limit)
}

var escaper = strings.NewReplacer("%", "%25", "#", "%23")

// Subject returns the subject of the events about a balance: balance:ENTITY#RESOURCE#LIMIT, with # and % in a name
// written as %23 and %25.
func (k Key) Subject() string {
	return "balance:" + escaper.Replace(k.Entity) + "#" + escaper.Replace(k.Resource) + "#" + escaper.Replace(k.Limit)
}

// Action is that of the events about credits.
const Action = "balance.credit"

// Entry is what the event of a credit has.
type Entry struct {
	Key
	Amount int64  `json:"amount"` // tokens
	ID     string `json:"id"`
	// Available is what could then be spent, in tokens.
	Available int64 `json:"available"`
	// Repeated is set if the event was written when the credit was repeated, because there was none, or none any more.
	Repeated bool `json:"repeated,omitempty"`
}

// Credit adds tokens to a balance that is in force, once for each ID, and writes the event of it, once for each ID
// that has none. It reports whether the credit had been made before.
//
// Errors: a [*record.FieldError], [policy.ErrNotFound] without such a balance, a [*store.CreditError].
func Credit(ctx context.Context, st store.Store, n *policy.Namespace, namespaceID string, e Entry) (bool, error) {
	if err := e.check(); err != nil {
		return false, err
	}
	b := store.Bucket{Namespace: namespaceID, Entity: e.Entity, Resource: e.Resource}
	targets, err := n.InForce(ctx, []store.Bucket{b})
	if err != nil {
		return false, err
	}
	if !has(&targets[0], e.Limit) {
		return false, fmt.Errorf("balance %q of %q on %s: %w: name the resource or group that it is on, or first "+
			"set %s:balance there", e.Limit, e.Entity, store.ResourceQuoted(e.Resource), policy.ErrNotFound, e.Limit)
	}
	credit, began := store.Credit{Bucket: b, Limit: e.Limit, Amount: e.Amount * 1000, ID: e.ID}, time.Now()
	out, err := st.Credit(ctx, credit)
	if errors.Is(err, store.ErrNotBalance) { // the bucket still has the limit that the balance replaces
		if err = Follow(ctx, st, n, b); err == nil {
			out, err = st.Credit(ctx, credit)
		}
	}
	switch {
	case errors.Is(err, store.ErrOverflow):
		return false, record.Invalid("amount", "is too much: a balance has at most %d tokens", int64(record.MaxTokens))
	case err != nil:
		return false, err
	}
	ctx = context.WithoutCancel(ctx) // no credit without its event
	e.Available, e.Repeated = -out.Level/1000, out.Before
	ev := record.Event{Action: Action, Subject: e.Subject(), After: e}
	return out.Before, n.Report(ctx, namespaceID, ev, func() (bool, error) {
		return reported(ctx, st, namespaceID, &e, began)
	})
}

func (e *Entry) check() error {
	if err := e.Key.Check(); err != nil {
		return err
	}
	switch {
	case e.ID == "":
		return record.Invalid("id", "is missing: name what is paid, such as the number of an invoice, "+
			"so that it is credited once, however often it is repeated")
	case e.Amount <= 0 || e.Amount > record.MaxTokens:
		return record.Invalid("amount", "must be between 1 and %d tokens: to take credits back, debit them by "+
			"an adjustment", int64(record.MaxTokens))
	}
	return record.CheckID("id", e.ID)
}

// apart is how far the clocks of processes may be apart that write events.
const apart = time.Minute

// reported reports whether a credit has an event. One that was made since a time has none from before.
func reported(ctx context.Context, c store.Catalog, namespaceID string, e *Entry, since time.Time) (bool, error) {
	q := store.Query{Namespace: namespaceID, Kind: store.KindAudit, Sub: e.Subject(), Reverse: true, Max: 10}
	for ; ; q.Max = 1000 {
		page, err := c.List(ctx, q)
		if err != nil {
			return false, err
		}
		for _, r := range page.Records {
			line, before, err := EntryOf(r)
			if err != nil || before.ID == e.ID || !e.Repeated && line.At.Before(since.Add(-apart)) {
				return err == nil && before.ID == e.ID, err
			}
		}
		if q.After = page.Next; q.After == "" {
			return false, nil
		}
	}
}

// EntryOf returns the event of a credit.
func EntryOf(r store.Record) (line record.AuditLine, e Entry, err error) {
	line, err = record.LineOf(r)
	if err == nil {
		err = record.Decode(store.Record{Key: r.Key, Value: line.After}, &e)
	}
	return line, e, err
}

// has reports whether a balance is among the limits in force.
func has(t *policy.Target, limit string) bool {
	return slices.ContainsFunc(t.Limits, func(l store.Limit) bool { return l.Name == limit && l.IsBalance() })
}

// Follow lets a bucket follow the limits in force, by a take of nothing, which may be refused.
func Follow(ctx context.Context, st store.Store, n *policy.Namespace, b store.Bucket) error {
	targets, err := n.InForce(ctx, []store.Bucket{b})
	if err != nil || len(targets[0].Limits) == 0 {
		return err
	}
	d := store.Debit{Bucket: b, Epoch: targets[0].Epoch, Phase: targets[0].Phase}
	for i := range targets[0].Limits {
		d.Charges = append(d.Charges, store.Charge{Limit: &targets[0].Limits[i]})
	}
	_, err = st.Take(ctx, store.Take{Debits: []store.Debit{d}})
	if errors.Is(err, store.ErrStaleLimits) { // they are newer already
		return nil
	}
	return err
}

// Forgive sets the limits of a bucket that are in debt to 0 available tokens.
func Forgive(ctx context.Context, st store.Store, was *store.State, bucket store.Bucket) error {
	debts := store.Debit{Bucket: bucket}
	for _, l := range was.Limits {
		debts.Charges = append(debts.Charges, store.Charge{Limit: l.Limit, Amount: -clock.MaxLevel})
	}
	if len(debts.Charges) == 0 {
		return nil
	}
	_, err := st.Settle(ctx, store.Settle{Debits: []store.Debit{debts}, Forgive: true})
	return err
}
