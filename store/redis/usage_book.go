package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/usage"
	"github.com/weirlimits/weir/store"
)

const (
	// bookAtOnce is how many accounts one script changes, with their windows: other calls wait for it.
	bookAtOnce = 8
	// maxRereads is how often concurrent bookings of the same accounts may interfere before a booking is left to the
	// next pass.
	maxRereads = 10
	// lateBirth is for how many minutes an account remembers a birth after a later one was seen, and for how many the
	// account is kept after its bucket has gone. Ended births are listed as such, and the next pass books them.
	lateBirth = 6 * 60
	// lateProcess and keepProcess are for how many minutes a process's account remembers counters after later ones, and
	// for how many it is kept.
	lateProcess, keepProcess = 60, 3 * 24 * 60
	// maxChain is how many ancestors count a descendant's usage.
	maxChain = 8
)

// Hashes of accounts.
const (
	ofBuckets   = "ua"
	ofProcesses = "up"
)

var (
	errContended = errors.New("other readers keep counting the same buckets")
	errUnkept    = errors.New("the usage keys were deleted")
)

// parents returns the ancestors of entities of one namespace, nearest first.
type parents func(ctx context.Context, entities []string) (map[string][]string, error)

// bookAll books entries of one namespace. It returns how many it booked, and an error for each that is damaged and
// cannot be. errUnkept reports that nobody keeps the namespace's usage.
func (s *Store) bookAll(
	ctx context.Context, namespace string, entries []entry, above parents,
) (booked int, bad []error, err error) {
	for part := range slices.Chunk(entries, bookAtOnce) {
		n, wrong, err := s.book(ctx, namespace, part, above)
		if booked, bad = booked+n, append(bad, wrong...); err != nil {
			return booked, bad, err
		}
	}
	return booked, bad, nil
}

func (s *Store) book(
	ctx context.Context, namespace string, entries []entry, above parents,
) (booked int, bad []error, err error) {
	entities := make([]string, len(entries))
	for i := range entries {
		entities[i] = entries[i].bucket.Entity
	}
	chains, err := above(ctx, entities)
	if err != nil {
		return 0, nil, err
	}
	for try := range maxRereads {
		olds, err := s.accounts(ctx, namespace, entries, try > 0)
		if err != nil {
			return 0, bad, err
		}
		tx := booking{sums: make(map[usageWindow]map[string]int64)}
		bad, booked = nil, 0
		for i := range entries {
			e := &entries[i]
			var a account
			cause := e.bad
			if cause == nil {
				cause = a.parse(olds[i])
			}
			if cause != nil {
				bad = append(bad, s.trouble("usage", e.bucket.String(), cause))
				tx.left = append(tx.left, e.left...) // an ended birth cannot be repaired
				continue
			}
			deltas := a.see(e)
			tx.windows(e.bucket, deltas, chains[e.bucket.Entity])
			tx.accounts = append(tx.accounts, e.hash, e.field, olds[i], string(a.append(nil)))
			tx.left = append(tx.left, e.left...)
			booked++
		}
		if booked == 0 && len(tx.left) == 0 {
			return 0, bad, nil
		}
		answer, err := s.run(
			ctx, bookScript, []string{s.keys.meter(namespace)}, tx.args(s.now(), s.keys.base(namespace)),
		).ToString()
		switch {
		case err != nil:
			return 0, bad, s.trouble("usage", entries[0].bucket.String(), err)
		case answer == "N":
			return 0, bad, errUnkept
		case answer == "A":
			return booked, bad, nil
		}
		if err := s.ready(ctx); err != nil {
			return 0, bad, err
		}
	}
	return 0, bad, s.trouble("usage", entries[0].bucket.String(), errContended)
}

// accounts returns the accounts of entries; neighbours share a hash. With again, it also rereads those already read.
func (s *Store) accounts(ctx context.Context, namespace string, entries []entry, again bool) ([]string, error) {
	olds := make([]string, 0, len(entries))
	for rest := entries; len(rest) > 0; {
		if rest[0].old != nil && !again {
			olds, rest = append(olds, *rest[0].old), rest[1:]
			continue
		}
		n := 1
		for n < len(rest) && rest[n].hash == rest[0].hash && (rest[n].old == nil || again) {
			n++
		}
		fields := make([]string, n)
		for i := range fields {
			fields[i] = rest[i].field
		}
		got, err := s.run(ctx, accountsScript, []string{s.keys.base(namespace) + rest[0].hash}, fields).AsStrSlice()
		if err == nil && len(got) != n {
			err = errFormat
		}
		if err != nil {
			return nil, s.trouble("usage", rest[0].bucket.String(), err)
		}
		olds, rest = append(olds, got...), rest[n:]
	}
	return olds, nil
}

// usageWindow identifies a window within a namespace.
type usageWindow struct {
	window store.Window
	of     store.UsageOf
	start  int64
	member string
}

// kind is the window's type and what it counts, as in keys.
func (w *usageWindow) kind() string { return kindOf(w.window, w.of) }

func kindOf(w store.Window, of store.UsageOf) string { return string([]byte{w[0], byte(of)}) }

// booking is what one script books.
type booking struct {
	accounts []string // hash, field, old and new value of each account
	order    []usageWindow
	sums     map[usageWindow]map[string]int64
	left     []string
}

// windows adds the changes of a bucket's windows, and of those of everything that it belongs to.
func (b *booking) windows(of store.Bucket, deltas []usage.Delta, chain []string) {
	for i := range deltas {
		d := &deltas[i]
		add := func(kind store.UsageOf, id, sub string) {
			w := usageWindow{d.Window, kind, d.Start, member(id, sub)}
			if b.sums[w] == nil {
				b.sums[w] = make(map[string]int64)
				b.order = append(b.order, w)
			}
			b.sums[w][usage.Letters[d.Figure:d.Figure+1]+d.Limit] += d.Amount
		}
		add(store.OfBucket, of.Entity, of.Resource)
		if d.Figure == usage.Peak {
			continue
		}
		add(store.OfResource, of.Resource, "")
		add(store.OfNamespace, "", "")
		add(store.OfStore, "", "")
		for _, up := range chain {
			add(store.OfChildren, up, of.Resource)
		}
	}
}

func (b *booking) args(now, base string) []string {
	args := append(
		[]string{now, base, strconv.Itoa(len(b.accounts) / 4), strconv.Itoa(len(b.order)), strconv.Itoa(len(b.left))},
		b.accounts...,
	)
	for _, w := range b.order {
		end := usage.Next(w.window, time.Unix(w.start, 0).UTC()).Unix()
		args = append(
			args, w.kind(), strconv.FormatInt(w.start, 10), strconv.FormatInt(end, 10), w.member,
			strconv.Itoa(len(b.sums[w])),
		)
		for figure, n := range b.sums[w] {
			args = append(args, figure, strconv.FormatInt(n, 10))
		}
	}
	return append(args, b.left...)
}
