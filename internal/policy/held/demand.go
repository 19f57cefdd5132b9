package held

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// ErrExceedsBurst is [weir.ErrExceedsBurst].
var ErrExceedsBurst = errors.New("larger than the burst")

// BurstError is [weir.BurstError].
type BurstError struct {
	Entity, Resource, Limit string
	Requested, Burst        int64
}

// Error names the limit and both amounts.
func (e *BurstError) Error() string {
	return fmt.Sprintf(
		"%d %s requested of %s on %s, but at most %d can be spent at once: ask for less or raise the limit",
		e.Requested, e.Limit, e.Entity, store.ResourceText(e.Resource), e.Burst)
}

// TooMuch returns the error of a request for so many tokens of a limit of a bucket.
func TooMuch(b store.Bucket, l *store.Limit, tokens int64) *BurstError {
	return &BurstError{b.Entity, b.Resource, l.Name, tokens, l.Burst / 1000}
}

// Is reports whether target is [ErrExceedsBurst].
func (e *BurstError) Is(target error) bool { return target == ErrExceedsBurst }

// Demand is what a request needs.
type Demand struct {
	Entity, Resource string
	Tokens           map[string]int64 // by limit name
	Requests         int64            // of the limits that count requests, and are not named
}

// Of returns the tokens needed of a limit, and whether it is named. Of a limit of slots that is not, a request needs
// one.
func (d *Demand) Of(l *store.Limit) (n int64, named bool) {
	n, named = d.Tokens[l.Name]
	switch {
	case named:
	case l.IsSlots():
		n = 1
	case record.CountsRequests(l.Name):
		n = d.Requests
	}
	return n, named
}

// Set sets the charges of debits, the first of which is the entity's, to what is needed, and refuses what can never
// pass. The errors are [*record.FieldError] and [*BurstError].
func (d *Demand) Set(debits []store.Debit) error {
	named, counted := 0, false
	for i := range debits {
		for j := range debits[i].Charges {
			c := &debits[i].Charges[j]
			n, ok := d.Of(c.Limit)
			if ok && i == 0 {
				named++
			}
			counted = counted || !ok && n != 0 && !c.Limit.IsSlots()
			switch {
			case n == 0:
				c.Force = c.Force || c.Limit.IsSlots() && !c.Shadow // takes none, so a full limit does not refuse it
				continue
			case n < 0:
				return record.Invalid("tokens."+c.Limit.Name, "must not be negative: %d", n)
			case n > record.MaxTokens:
				return record.Invalid("tokens."+c.Limit.Name, "must be at most %d", int64(record.MaxTokens))
			case n*1000 > c.Limit.Burst && !c.Shadow:
				return TooMuch(debits[i].Bucket, c.Limit, n)
			}
			c.Amount = n * 1000
		}
	}
	if d.Requests != 0 && !counted {
		return d.countsNone()
	}
	if named == len(d.Tokens) {
		return nil
	}
	return d.checkNames(debits)
}

func (d *Demand) countsNone() error {
	return record.Invalid("requests", "entity %q on resource %q has no limit that counts requests"+
		" (named rps, rpm, rph, rpd or requests), apart from those in Tokens", d.Entity, d.Resource)
}

// checkNames returns an error if a name is not that of a limit that debits charge.
func (d *Demand) checkNames(debits []store.Debit) error {
	names := limitNames(debits)
	for name := range d.Tokens {
		if !slices.Contains(names, name) {
			return record.Invalid("tokens."+name,
				"no limit of entity %q on resource %q has this name; its limits are %s", d.Entity, d.Resource,
				strings.Join(names, ", "))
		}
	}
	return nil
}

// CheckChange returns an error for an adjustment by Tokens that a lease of debits cannot make. Of a lease that is free,
// because nothing was decided, the limits are not known.
func (d *Demand) CheckChange(debits []store.Debit, free bool) error {
	for name, n := range d.Tokens {
		if n > record.MaxTokens || n < -record.MaxTokens {
			most := int64(record.MaxTokens)
			return record.Invalid("tokens."+name, "must be between -%d and %d", most, most)
		}
	}
	if free {
		return nil
	}
	return d.checkNames(debits)
}

// Change returns the adjustment that books the request without a lease, and makes debits those of a lease that holds
// enough to give back what is negative. Usage is booked in shadow, too.
func (d *Demand) Change(debits []store.Debit) (map[string]int64, error) {
	delta := make(map[string]int64, len(d.Tokens)+1)
	for i := range debits {
		for j := range debits[i].Charges {
			c := &debits[i].Charges[j]
			c.Amount, c.Shadow = 0, false
			n, named := d.Of(c.Limit)
			switch {
			case c.Limit.IsSlots() && named:
				return nil, record.Invalid("tokens."+c.Limit.Name, "is a limit of slots, which a lease gives back")
			case c.Limit.IsSlots():
				continue
			case !named && n != 0:
				delta[c.Limit.Name] = n
			}
			if n < 0 {
				c.Amount = clock.MaxBurst // allows a return up to this amount
			}
		}
	}
	if d.Requests != 0 && len(delta) == 0 {
		return nil, d.countsNone()
	}
	maps.Copy(delta, d.Tokens)
	return delta, nil
}

// limitNames returns the names of the limits that debits charge, each once.
func limitNames(debits []store.Debit) (names []string) {
	for i := range debits {
		for _, c := range debits[i].Charges {
			names = append(names, c.Limit.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
