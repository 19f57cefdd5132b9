package ledger

import (
	"context"
	"errors"
	"math"

	"github.com/weirlimits/weir/store"
)

// Backend keeps accounts of type T, and windows.
type Backend[T any] interface {
	// Room returns how many accounts are booked at once, and how many accounts and windows Apply takes.
	Room() (accounts, items int)
	// Read reads the accounts of entries. It sets Err of those whose account cannot be read.
	Read(ctx context.Context, entries []*Entry[T]) error
	// See adds readings to the account that was read. It returns the resulting changes, and whether the account is to
	// be stored.
	See(e *Entry[T], readings []Reading) (deltas []Delta, store bool)
	// Parents returns the parents of entities; "" if there is none.
	Parents(ctx context.Context, entities []store.Key) ([]string, error)
	// Apply stores accounts and adds sums to the windows: all or none. Its errors are [ErrChanged] if an account is not
	// as it was read, and [ErrDamaged] if that can never succeed.
	Apply(ctx context.Context, entries []*Entry[T], sums Sums) error
}

// Entry is what there is to book for one account.
type Entry[T any] struct {
	Bucket   store.Bucket
	Readings []Reading
	Account  T
	Err      error // why it was not booked, or is not to be booked

	seen   int // the number of readings that the account has seen
	deltas []Delta
	stored bool
}

// Window identifies a window.
type Window struct {
	Of                 store.UsageOf
	Namespace, ID, Sub string
	Type               store.Window
	Start              int64 // seconds since the Unix epoch
}

// Sums are changes to windows.
type Sums map[Window][]store.LimitFigures

// Unlimited is the room of a back end that takes everything at once.
const Unlimited = math.MaxInt

var (
	// ErrChanged reports that an account was changed since it was read.
	ErrChanged = errors.New("the account has changed")
	// ErrDamaged reports what can never be booked as it is.
	ErrDamaged = errors.New("the record is damaged")
	// ErrContended reports that an account was changed whenever it had been read.
	ErrContended = errors.New("other processes keep counting the same records")
)

// maxRereads is how often accounts are read again because others have changed them.
const maxRereads = 10

// Book books entries: it reads their accounts, has them see the readings, and applies what that changes. It sets Err of
// the entries that were not booked. It returns an error if the back end cannot be read; that is then the Err of all
// entries that were not booked.
func Book[T any](ctx context.Context, b Backend[T], entries []*Entry[T]) error {
	accounts, _ := b.Room()
	for len(entries) > 0 {
		n := min(len(entries), accounts)
		if err := book(ctx, b, entries[:n]); err != nil {
			fail(entries[n:], err)
			return err
		}
		entries = entries[n:]
	}
	return nil
}

func book[T any](ctx context.Context, b Backend[T], entries []*Entry[T]) error {
	for try := 0; ; try++ {
		if entries = bookable(entries); len(entries) == 0 {
			return nil
		}
		if try > maxRereads {
			fail(entries, ErrContended)
			return nil
		}
		err := b.Read(ctx, entries)
		var chains map[store.Key][]string
		if err == nil {
			chains, err = ancestors(ctx, b.Parents, entries)
		}
		if err != nil {
			fail(entries, err)
			return err
		}
		var progress bool
		if entries, progress = pass(ctx, b, bookable(entries), chains); progress {
			try = -1
		}
	}
}

func fail[T any](entries []*Entry[T], err error) {
	for _, e := range entries {
		if e.Err == nil {
			e.Err = err
		}
	}
}

// bookable returns the entries without an error.
func bookable[T any](entries []*Entry[T]) []*Entry[T] {
	var ok []*Entry[T]
	for _, e := range entries {
		if e.Err == nil {
			ok = append(ok, e)
		}
	}
	return ok
}

// pass books entries whose accounts have been read. It returns those to be read again, because their account has
// changed or because there are more readings, and whether anything was booked of the latter.
func pass[T any](
	ctx context.Context, b Backend[T], entries []*Entry[T], chains map[store.Key][]string,
) (again []*Entry[T], progress bool) {
	_, room := b.Room()
	for _, e := range entries {
		e.seen = len(e.Readings)
		if room != Unlimited {
			e.seen = atOnce(e.Readings)
		}
		e.deltas, e.stored = b.See(e, e.Readings[:e.seen])
	}
	for most := len(entries); len(entries) > 0; {
		sums := make(Sums)
		n := fill(sums, entries[:min(most, len(entries))], chains, room)
		err := b.Apply(ctx, entries[:n], sums)
		if errors.Is(err, ErrDamaged) && n > 1 { // one of them is: try them one at a time
			most = 1
			continue
		}
		for _, e := range entries[:n] {
			switch {
			case err == nil && e.seen == len(e.Readings):
			case err == nil:
				e.Readings, progress = e.Readings[e.seen:], true
				again = append(again, e)
			case errors.Is(err, ErrChanged):
				again = append(again, e)
			default:
				e.Err = err
			}
		}
		entries = entries[n:]
	}
	return again, progress
}

// limitsAtOnce is how many limits readings may have that are booked at once: as many as a single one.
const limitsAtOnce = store.MaxLimits + store.MaxOverrides

// atOnce returns how many readings of a source are booked at once: of one hour, so that there is room for its windows,
// and of few limits, because one operation on a window changes only so many figures.
func atOnce(readings []Reading) int {
	limits := make(map[string]bool)
	for i := range readings {
		r := &readings[i]
		for j := range r.Counts {
			limits[r.Counts[j].Limit] = true
		}
		if i > 0 && (hourOf(r.Minute) != hourOf(readings[0].Minute) || len(limits) > limitsAtOnce) {
			return i
		}
	}
	return len(readings)
}
