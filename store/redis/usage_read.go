package redis

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
)

const (
	// lookAtOnce is how many buckets a script checks for changes, and changedAtOnce the number of changed ones at which
	// it stops.
	lookAtOnce, changedAtOnce = 100, 4 * bookAtOnce
	// sweepEvery is how often accounts without a bucket or process are looked for.
	sweepEvery = time.Hour
)

// Ledger books usage from the buckets' counters. It is safe for concurrent use, and any number of ledgers may read the
// same buckets at the same time: each token is counted once.
type Ledger struct {
	s    *Store
	keep string

	mu    sync.Mutex
	swept map[string]time.Time // by namespace
}

// Passed is the result of a pass.
type Passed struct {
	Booked int           // accounts in which something was new
	Apart  time.Duration // by how much passes were further apart than buckets are certain to be kept; normally 0
	Bad    []error       // what cannot be read and was not booked
}

// Pass books everything that buckets have counted since they were last read, including the final counts of those that
// are gone. In a namespace that existed before usage was kept, the first pass starts from the buckets' current
// counters. If a pass fails, what it has booked stays booked, and a namespace that cannot be read does not block the
// others; the next pass continues.
func (l *Ledger) Pass(ctx context.Context) (Passed, error) {
	last, namespaces, err := l.metered(ctx)
	if err != nil {
		return Passed{}, err
	}
	var all Passed
	var errs []error
	began := ""
	for _, ns := range namespaces {
		if err := l.s.ready(ctx); err != nil {
			return all, err
		}
		now, err := l.pass(ctx, ns, &all)
		errs = append(errs, err)
		began = cmp.Or(began, now)
	}
	if began != "" {
		all.Apart = max(0, time.Duration(layout.Read64(began)-layout.Read64(last))-l.s.cfg.Margin)
	}
	if err := errors.Join(errs...); err != nil {
		return all, err
	}
	key := l.s.keys.passed()
	if _, err := call(ctx, &l.s.server, script.Passed, []string{key}, []string{began}, asMessage); err != nil {
		return all, l.s.trouble("usage", key, err)
	}
	return all, nil
}

// metered returns when the last complete pass began, and the namespaces. It records them: the sums over the store cover
// all that ever existed.
func (l *Ledger) metered(ctx context.Context) (last string, all []space, err error) {
	namespaces := []string{"default"} // the default namespace has no record
	q := store.Query{Namespace: registry, Kind: store.KindNamespaceID, Max: 1000}
	for {
		page, err := l.s.List(ctx, q)
		if err != nil {
			return "", nil, err
		}
		for i := range page.Records {
			if page.Records[i].Expires.IsZero() { // otherwise it was purged
				namespaces = append(namespaces, page.Records[i].Key.ID)
			}
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return l.s.spaces(ctx, namespaces)
}

// pass books one namespace and returns the time at which it began.
func (l *Ledger) pass(ctx context.Context, ns space, all *Passed) (began string, err error) {
	key := l.s.keys.meter(ns.id)
	args := []string{l.s.now(), l.s.keys.base(ns.id), l.keep}
	got, err := call(ctx, &l.s.server, script.Meter, []string{key}, args, asString)
	if err == nil && len(got) != 10 {
		err = layout.ErrFormat
	}
	if err != nil {
		return "", l.s.trouble("usage", key, err)
	}
	began = got[:8]
	books := newBooks(l.s, ns.id, ofBuckets)
	note := func(n int, bad []error, err error) error {
		all.Booked += n
		all.Bad = append(all.Bad, bad...)
		return err
	}
	if got[9] == '1' {
		if err := note(books.bookLeft(ctx, ns)); err != nil {
			return began, err
		}
	}
	if got[8] == '1' {
		if err := note(l.buckets(ctx, ns, books)); err != nil {
			return began, err
		}
	}
	if ns.fresh {
		keys := []string{l.s.keys.unbegun()}
		if _, err := call(ctx, &l.s.server, script.Begun, keys, []string{ns.id}, asMessage); err != nil {
			return began, l.s.trouble("usage", l.s.keys.unbegun(), err)
		}
	}
	return began, l.sweep(ctx, ns.id)
}

// bookLeft books the births that have ended, in order.
func (b *books) bookLeft(ctx context.Context, ns space) (booked int, bad []error, err error) {
	key := b.s.keys.left(ns.id)
	for {
		most := []string{strconv.Itoa(8 * bookAtOnce)}
		got, err := call(ctx, &b.s.server, script.Left, []string{key}, most, asStrings)
		if err != nil {
			return booked, bad, b.s.trouble("usage", key, err)
		}
		if len(got) == 0 {
			return booked, bad, nil
		}
		var entries []*entry
		known := make(map[string]*entry)
		for _, raw := range got {
			e := b.leftEntry(ns, raw)
			if first := known[e.Account.field]; first != nil && e.Err == nil {
				first.Readings = append(first.Readings, e.Readings...)
				first.Account.left = append(first.Account.left, raw)
				continue
			}
			if e.Err == nil {
				known[e.Account.field] = e
			}
			entries = append(entries, e)
		}
		n, wrong, err := b.book(ctx, entries)
		if booked, bad = booked+n, append(bad, wrong...); err != nil {
			return booked, bad, err
		}
		if err := b.s.ready(ctx); err != nil {
			return booked, bad, err
		}
	}
}

// buckets books what has changed since it was last read.
func (l *Ledger) buckets(ctx context.Context, ns space, books *books) (booked int, bad []error, err error) {
	index, from := l.s.keys.index(ns.id), "-"
	for {
		got, err := call(ctx, &l.s.server, script.ReadUsage, []string{index},
			[]string{l.s.keys.base(ns.id), from, strconv.Itoa(lookAtOnce), strconv.Itoa(changedAtOnce)}, asStrings)
		if err == nil && len(got)%3 != 1 {
			err = layout.ErrFormat
		}
		if err != nil {
			return booked, bad, l.s.trouble("usage", index, err)
		}
		entries := make([]*entry, 0, len(got)/3)
		for i := 1; i < len(got); i += 3 {
			e := books.entryOf(ns, got[i], got[i+1])
			e.Account.old = &got[i+2]
			entries = append(entries, e)
		}
		n, wrong, err := books.book(ctx, entries)
		if booked, bad = booked+n, append(bad, wrong...); err != nil {
			return booked, bad, err
		}
		if got[0] == "" {
			return booked, bad, nil
		}
		from = "(" + got[0]
		if err := l.s.ready(ctx); err != nil {
			return booked, bad, err
		}
	}
}

// sweep removes accounts without a bucket or process from time to time.
func (l *Ledger) sweep(ctx context.Context, ns string) error {
	l.mu.Lock()
	due := time.Since(l.swept[ns]) >= sweepEvery
	l.mu.Unlock()
	if !due {
		return nil
	}
	if err := l.removeGone(ctx, ns); err != nil {
		return err
	}
	l.mu.Lock()
	l.swept[ns] = time.Now()
	l.mu.Unlock()
	return nil
}

// removeGone removes accounts without a bucket or process.
func (l *Ledger) removeGone(ctx context.Context, ns string) error {
	s := l.s
	base := s.keys.base(ns)
	for _, of := range []struct {
		hash, buckets string
		keep          int
	}{{ofBuckets, base + "b", lateBirth}, {ofProcesses, "", keepProcess}} {
		for at := "0"; ; {
			var err error
			if at, err = call(ctx, &s.server, script.Sweep, []string{base + of.hash}, []string{
				s.now(), of.buckets, at, strconv.Itoa(of.keep),
			}, asString); err != nil {
				return s.trouble("usage", base+of.hash, err)
			}
			if at == "0" {
				break
			}
			if err := s.ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
