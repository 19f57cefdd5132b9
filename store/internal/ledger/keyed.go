package ledger

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// Tx is one atomic operation on ordered keys. Results of Get and of a cursor are valid until the next change.
type Tx interface {
	Get(key []byte) []byte
	Put(key, value []byte) error
	Delete(key []byte) error
	Cursor() Cursor
}

// Cursor iterates over keys in order. A nil key marks the end.
type Cursor interface {
	Seek(key []byte) (k, value []byte)
	Next() (k, value []byte)
}

// Parent returns an entity's parent, or "" if it has none.
type Parent func(entity store.Key) string

// accountsAtOnce bounds the memory that accounts take while they are booked.
const accountsAtOnce = 1000

// keyed is the back end over ordered keys. Nobody else changes them meanwhile.
type keyed struct {
	tx     Tx
	parent Parent
}

type keyedAccount struct {
	Account

	key, raw, next []byte // next: the new value, nil if it is the old one
}

// Apply records observations in order, in one operation: their accounts and the windows that they change. The births
// of one source must come in the order of their IDs.
func Apply(tx Tx, observations []Observation, parent Parent) error {
	entries := grouped(observations)
	_ = Book(context.Background(), keyed{tx, parent}, entries)
	for _, e := range entries {
		if e.Err != nil {
			return e.Err
		}
	}
	return nil
}

// Known reports whether the source of an observation has an account.
func Known(tx Tx, o *Observation) bool { return tx.Get(accountKey(o.Bucket, o.Source)) != nil }

// grouped returns observations by bucket and source.
func grouped(observations []Observation) []*Entry[keyedAccount] {
	order := make([]*Observation, len(observations))
	for i := range observations {
		order[i] = &observations[i]
	}
	slices.SortStableFunc(order, func(a, b *Observation) int {
		return cmp.Or(a.Bucket.Compare(b.Bucket), strings.Compare(a.Source, b.Source))
	})
	var entries []*Entry[keyedAccount]
	for i, o := range order {
		if i == 0 || o.Bucket != order[i-1].Bucket || o.Source != order[i-1].Source {
			e := &Entry[keyedAccount]{Bucket: o.Bucket}
			e.Account.key = accountKey(o.Bucket, o.Source)
			entries = append(entries, e)
		}
		last := entries[len(entries)-1]
		last.Readings = append(last.Readings, o.Reading)
	}
	return entries
}

// Room implements [Backend].
func (k keyed) Room() (accounts, items int) { return accountsAtOnce, Unlimited }

// Parents implements [Backend].
func (k keyed) Parents(_ context.Context, entities []store.Key) ([]string, error) {
	out := make([]string, len(entities))
	for i, e := range entities {
		out[i] = k.parent(e)
	}
	return out, nil
}

// Read implements [Backend].
func (k keyed) Read(_ context.Context, entries []*Entry[keyedAccount]) error {
	for _, e := range entries {
		if a := &e.Account; k.tx.Get(a.key) != nil {
			a.raw = k.tx.Get(a.key)
			e.Err = a.Decode(a.raw)
		}
	}
	return nil
}

// See implements [Backend].
func (k keyed) See(e *Entry[keyedAccount], readings []Reading) ([]Delta, bool) {
	a := &e.Account
	var changes []Change
	for i := range readings {
		changes = a.Observe(&readings[i], changes)
		a.Close(readings[i].Minute, true)
	}
	if next := a.Append(nil); !bytes.Equal(next, a.raw) {
		a.next = next
	}
	return inWindows(changes), a.next != nil
}

// Apply implements [Backend].
func (k keyed) Apply(_ context.Context, entries []*Entry[keyedAccount], sums Sums) error {
	for _, e := range entries {
		if a := &e.Account; a.next != nil {
			if err := k.tx.Put(a.key, a.next); err != nil {
				return err
			}
		}
	}
	peaks := make(Sums)
	for _, hours := range []bool{true, false} { // hours first, because longer windows derive their peaks from them
		order := make([]Window, 0, len(sums))
		for w := range sums {
			if hours == (w.Type == store.Hourly) {
				order = append(order, w)
			}
		}
		slices.SortFunc(order, func(a, b Window) int {
			return cmp.Or(
				strings.Compare(string(a.Type), string(b.Type)), cmp.Compare(a.Start, b.Start), cmp.Compare(a.Of, b.Of),
				strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID), strings.Compare(a.Sub, b.Sub),
			)
		})
		for _, w := range order {
			if err := k.write(w, sums[w], peaks); err != nil {
				return err
			}
		}
	}
	return nil
}

// write adds changes to a window. Longer windows take their peaks from those that their hours had. Of the limits for
// which there is no room, there is no peak: it would be that of their sum.
func (k keyed) write(w Window, changes []store.LimitFigures, peaks Sums) error {
	key := w.key()
	counts, err := decodeCounts(k.tx.Get(key))
	if err != nil {
		return err
	}
	for i := range changes {
		limit := named(counts, changes[i].Limit)
		for f := range figures {
			if n := *Field(&changes[i].Figures, f); n != 0 && (f != Peak || limit == changes[i].Limit) {
				counts = add(counts, limit, f, n)
			}
		}
	}
	if w.Type != store.Hourly {
		for _, p := range peaks[w] {
			if named(counts, p.Limit) == p.Limit {
				counts = store.MergeFigures(counts, []store.LimitFigures{p})
			}
		}
	} else if w.Of == store.OfBucket {
		w.spread(counts, peaks)
	}
	return k.tx.Put(key, appendCounts(nil, counts))
}

// maxNamed is how many limits a window names: requests can bring limits of ever new names.
const maxNamed = 1000

// Others stands for the limits for which a window has no room, as it does where processes count refusals.
const Others = "_default_"

// named returns the name under which a window with these counts keeps a limit.
func named(counts []store.LimitFigures, limit string) string {
	_, found := slices.BinarySearchFunc(counts, limit, func(c store.LimitFigures, l string) int {
		return cmp.Compare(c.Limit, l)
	})
	if found || limit == "" || len(counts) < maxNamed {
		return limit
	}
	return Others
}

// spread passes an hour's peaks on to the longer windows that contain it.
func (w Window) spread(counts []store.LimitFigures, peaks Sums) {
	var high []store.LimitFigures
	for i := range counts {
		if peak := counts[i].Peak; peak > 0 {
			high = append(high, store.LimitFigures{Limit: counts[i].Limit, Figures: store.Figures{Peak: peak}})
		}
	}
	if high == nil {
		return
	}
	for _, longer := range store.Windows[1:] {
		k := w
		k.Type, k.Start = longer, longer.Start(w.time()).Unix()
		peaks[k] = store.MergeFigures(peaks[k], high)
	}
}

// Expire removes windows past their retention, the accounts of processes that are gone and, with ended set, the
// accounts of buckets that are gone; at most the given number of each. It reports whether there is more.
func Expire(tx Tx, r store.Retention, now time.Time, ended bool, most int) (more bool, err error) {
	for _, win := range store.Windows {
		first := Kept(r, win, now)
		if first.IsZero() {
			continue
		}
		prefix := []byte{windowSpace, letterOf(win)}
		done, err := prune(tx, prefix, most, func(k, _ []byte) (bool, bool) {
			old := startOf(k) < first.Unix()
			return old, !old
		})
		if err != nil {
			return false, err
		}
		more = more || !done
	}
	const kept = 2 * 24 * 60 // minutes
	done, err := prune(tx, []byte{processSpace}, most, func(_, v []byte) (bool, bool) {
		var a Account
		return a.Decode(v) != nil || a.horizon < MinuteOf(now)-kept, false
	})
	if err != nil || !ended {
		return more || !done, err
	}
	more = more || !done
	done, err = prune(tx, []byte{accountSpace}, most, func(_, v []byte) (bool, bool) {
		var a Account
		return a.Decode(v) != nil || a.ended && hourOf(a.horizon) < hourOf(MinuteOf(now)), false
	})
	return more || !done, err
}

// Forget removes the windows of a namespace, at most the given number, and reports whether there are more. The
// accounts stay, because otherwise the next reading would count everything again.
func Forget(tx Tx, namespace string, most int) (more bool, err error) {
	done, err := prune(tx, []byte{windowSpace}, most, func(k, _ []byte) (bool, bool) {
		part, _, ok := varint.CutPart(k[11:])
		return ok && part == namespace && store.UsageOf(k[10]) != store.OfStore, false
	})
	return !done, err
}

// prune removes the records under a prefix that which selects, until which returns enough or most records are
// removed. done says that none are left.
func prune(tx Tx, prefix []byte, most int, which func(key, value []byte) (remove, enough bool)) (done bool, err error) {
	var gone [][]byte
	done = true
	c := tx.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		remove, enough := which(k, v)
		if enough {
			break
		}
		if !remove {
			continue
		}
		if len(gone) == most {
			done = false
			break
		}
		gone = append(gone, bytes.Clone(k))
	}
	for _, k := range gone {
		if err := tx.Delete(k); err != nil {
			return false, err
		}
	}
	return done, nil
}

// Shrink removes the oldest windows that are over at now, hours before days before months, and reports whether there
// were any.
func Shrink(tx Tx, now time.Time) bool {
	for _, win := range store.Windows {
		k, _ := tx.Cursor().Seek([]byte{windowSpace, letterOf(win)})
		key, ok := parseWindow(k)
		if !ok || key.Type != win || key.Start >= win.Start(now).Unix() {
			continue
		}
		done, err := prune(tx, []byte{windowSpace, letterOf(win)}, 1<<20, func(k, _ []byte) (bool, bool) {
			return true, startOf(k) != key.Start
		})
		return done && err == nil
	}
	return false
}
