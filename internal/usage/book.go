package usage

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
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
type Parent func(namespace, entity string) string

// maxChain is how many ancestors a descendant's usage counts for.
const maxChain = 8

// Apply records observations in order, in one operation: their accounts and the windows that they change. The births
// of one source must come in the order of their IDs.
func Apply(tx Tx, observations []Observation, parent Parent) error {
	w := writer{windows: make(map[windowKey][]store.LimitFigures), parent: parent}
	order := make([]int, len(observations))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := &observations[i], &observations[j]
		if c := a.Bucket.Compare(b.Bucket); c != 0 {
			return c
		}
		return strings.Compare(a.Source, b.Source)
	})
	var key, buf []byte
	for n := 0; n < len(order); {
		first := &observations[order[n]]
		key = accountKey(key[:0], first.Bucket, first.Source)
		raw := tx.Get(key)
		w.account = Account{}
		if raw != nil {
			if err := w.account.Decode(raw); err != nil {
				return err
			}
		}
		w.changes = w.changes[:0]
		for ; n < len(order); n++ {
			o := &observations[order[n]]
			if o.Bucket != first.Bucket || o.Source != first.Source {
				break
			}
			w.changes = w.account.Observe(o, w.changes)
			w.account.Close(o.Minute, true)
		}
		if len(w.changes) > 0 {
			w.book(first.Bucket)
		}
		if buf = w.account.Append(nil); !bytes.Equal(buf, raw) {
			if err := tx.Put(bytes.Clone(key), buf); err != nil {
				return err
			}
		}
	}
	return w.write(tx)
}

// writer collects the changes made by observations.
type writer struct {
	account Account
	changes []Change
	windows map[windowKey][]store.LimitFigures
	parent  Parent
}

// book adds the changes of one bucket to its windows and to those of everything it belongs to.
func (w *writer) book(b store.Bucket) {
	w.add(store.OfBucket, b.Namespace, b.Entity, b.Resource)
	w.add(store.OfResource, b.Namespace, b.Resource, "")
	w.add(store.OfNamespace, b.Namespace, "", "")
	w.add(store.OfStore, store.Registry, "", "")
	entity := b.Entity
	for range maxChain {
		if entity = w.parent(b.Namespace, entity); entity == "" {
			break
		}
		w.add(store.OfChildren, b.Namespace, entity, b.Resource)
	}
}

func (w *writer) add(of store.UsageOf, namespace, id, sub string) {
	k := windowKey{of: of, namespace: namespace, id: id, sub: sub}
	for _, c := range w.changes {
		if c.Figure == Peak && of != store.OfBucket {
			continue
		}
		at := timeOfHour(c.Hour)
		for _, win := range store.Windows {
			k.window, k.start = letter(win), Start(win, at).Unix()
			if c.Figure == Peak && win != store.Hourly {
				continue // the highest of its hours: see write
			}
			w.windows[k] = add(w.windows[k], c.Limit, c.Figure, c.Delta)
		}
	}
}

// write adds the collected changes to the stored windows.
func (w *writer) write(tx Tx) error {
	type entry struct {
		key windowKey
		raw []byte
	}
	entries := make([]entry, 0, len(w.windows))
	for k := range w.windows {
		entries = append(entries, entry{k, k.append(nil)})
	}
	hourly := letter(store.Hourly)
	slices.SortFunc(entries, func(a, b entry) int { // hours first, because longer windows derive their peaks from them
		if hours := a.key.window == hourly; hours != (b.key.window == hourly) {
			if hours {
				return -1
			}
			return 1
		}
		return bytes.Compare(a.raw, b.raw)
	})
	peaks := make(map[windowKey][]store.LimitFigures)
	for _, e := range entries {
		counts, err := decodeCountsOf(tx.Get(e.raw))
		if err != nil {
			return err
		}
		for _, d := range w.windows[e.key] {
			for f := range figures {
				if v := *Field(&d.Figures, f); v != 0 {
					counts = add(counts, d.Limit, f, v)
				}
			}
		}
		if e.key.window == hourly {
			w.spread(e.key, counts, peaks)
		} else {
			counts = Merge(counts, peaks[e.key])
		}
		if err := tx.Put(e.raw, appendCounts(nil, counts)); err != nil {
			return err
		}
	}
	return nil
}

// spread passes an hour's peaks on to the longer windows that contain it.
func (w *writer) spread(k windowKey, counts []store.LimitFigures, peaks map[windowKey][]store.LimitFigures) {
	if k.of != store.OfBucket {
		return
	}
	var high []store.LimitFigures
	for i := range counts {
		if counts[i].Peak > 0 {
			high = append(high, store.LimitFigures{
				Limit: counts[i].Limit, Figures: store.Figures{Peak: counts[i].Peak},
			})
		}
	}
	if high == nil {
		return
	}
	at := k.time()
	for _, win := range store.Windows[1:] {
		k.window, k.start = letter(win), Start(win, at).Unix()
		peaks[k] = Merge(peaks[k], high)
	}
}

func decodeCountsOf(raw []byte) ([]store.LimitFigures, error) {
	if raw == nil {
		return nil, nil
	}
	return decodeCounts(raw, nil)
}

// Expire removes windows past their retention, the accounts of processes that are gone and, with ended set, the
// accounts of buckets that are gone; at most the given number of each. It reports whether there is more.
func Expire(tx Tx, r store.Retention, now time.Time, ended bool, most int) (more bool, err error) {
	for _, win := range store.Windows {
		first := Kept(r, win, now)
		if first.IsZero() {
			continue
		}
		prefix := []byte{windowSpace, letter(win)}
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
		part, _, ok := cutPart(k[11:])
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
		k, _ := tx.Cursor().Seek([]byte{windowSpace, letter(win)})
		key, ok := parseWindowKey(k)
		if !ok || key.window != letter(win) || key.start >= Start(win, now).Unix() {
			continue
		}
		done, err := prune(tx, []byte{windowSpace, letter(win)}, 1<<20, func(k, _ []byte) (bool, bool) {
			return true, startOf(k) != key.start
		})
		return done && err == nil
	}
	return false
}
