package redis

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/cursor"
	"github.com/weirlimits/weir/store/internal/ledger"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
)

var _ store.Usage = (*Store)(nil)

// Count implements [store.Usage]. If nobody keeps usage, readings are accepted but not counted: a later reading of the
// same counters makes up for them.
func (s *Store) Count(ctx context.Context, readings ...store.Reading) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	obs, err := ledger.Observations(readings)
	if err != nil {
		return err
	}
	by := make(map[string][]*entry) // by namespace
	known := make(map[string]*entry)
	for i := range obs {
		o := &obs[i]
		if checkParts([]store.Debit{{Bucket: o.Bucket}}) != nil {
			continue // no bucket has such a name, and it must not block the others
		}
		ns, field := o.Bucket.Namespace, member(o.Source, member(o.Bucket.Entity, o.Bucket.Resource))
		e := known[member(ns, field)]
		if e == nil {
			e = &entry{Bucket: o.Bucket, Account: booked{field: field}}
			known[member(ns, field)] = e
			by[ns] = append(by[ns], e)
		}
		e.Readings = ledger.MergeReading(e.Readings, o.Reading)
	}
	for ns, entries := range by {
		key := s.keys.meter(ns)
		kept, err := call(ctx, &s.server, script.Kept, []string{key}, nil, asInt)
		if err != nil {
			return s.trouble("count", key, err)
		}
		if kept == 0 {
			continue
		}
		// A damaged account blocks no others, and is removed after three days.
		if _, _, err := newBooks(s, ns, ofProcesses).book(ctx, entries); err != nil && !errors.Is(err, errUnkept) {
			return err
		}
	}
	return nil
}

// ForgetUsage implements [store.Usage]. What the namespace's buckets have counted so far is added to the sums over the
// store. The buckets' accounts stay, otherwise it would be counted again.
func (s *Store) ForgetUsage(ctx context.Context, namespace string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, _, err := newBooks(s, namespace, ofBuckets).bookLeft(ctx, space{id: namespace})
	if err != nil && !errors.Is(err, errUnkept) {
		return err
	}
	of := string([]byte{byte(store.OfBucket), byte(store.OfChildren), byte(store.OfResource), byte(store.OfNamespace)})
	for _, w := range store.Windows {
		key := s.keys.starts(namespace, w)
		for at := "-inf"; at != ""; {
			var err error
			at, err = call(ctx, &s.server, script.ForgetUsage, []string{key}, []string{
				s.keys.base(namespace), string(w[:1]), of, at, "200",
			}, asString)
			if err != nil {
				return s.trouble("usage", key, err)
			}
			if err := s.ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Usage implements [store.Usage]. It returns what was booked.
func (s *Store) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	if err := s.ready(ctx); err != nil {
		return store.UsagePage{}, err
	}
	return ledger.Page(&q, func(after *cursor.Position, f func(store.UsageRecord) bool) error {
		if after == nil && !q.Known {
			if _, _, err := s.Booked(ctx); err != nil {
				return err
			}
		}
		if q.Of == store.OfStore {
			return s.scanAll(ctx, &q, after, f)
		}
		return s.scan(ctx, q.Namespace, &q, after, f)
	})
}

// Booked returns when the last complete pass over all buckets began, by the clock of its reader, and the time that
// passes may be apart without losing anything. It fails with [store.ErrNoUsage] if nobody has ever booked usage, or not
// for weeks.
func (s *Store) Booked(ctx context.Context) (at time.Time, apart time.Duration, err error) {
	if err := s.ready(ctx); err != nil {
		return time.Time{}, 0, err
	}
	key := s.keys.passed()
	got, err := call(ctx, &s.server, script.Last, []string{key}, nil, asString)
	switch {
	case err == nil && got == "":
		err = fmt.Errorf("%w: in Redis, weir serve --aggregate or weir aggregate books it", store.ErrNoUsage)
		return time.Time{}, 0, err
	case err == nil && len(got) != 8:
		err = layout.ErrFormat
	}
	if err != nil {
		return time.Time{}, 0, s.trouble("usage", key, err)
	}
	return clock.Time(layout.Read64(got)), s.cfg.Margin, nil
}

// scanAll calls f with the sums over the store. Each namespace holds its part of them.
func (s *Store) scanAll(
	ctx context.Context, q *store.UsageQuery, after *cursor.Position, f func(store.UsageRecord) bool,
) error {
	_, spaces, err := s.spaces(ctx, nil)
	if err != nil {
		return err
	}
	sums := make(map[int64]store.UsageRecord) // by start
	for _, ns := range spaces {
		left := store.PageSize(q.Max) + 1
		err := s.scan(ctx, ns.id, q, after, func(r store.UsageRecord) bool {
			r.Counts = store.MergeFigures(sums[r.Start.Unix()].Counts, r.Counts)
			sums[r.Start.Unix()] = r
			left--
			return left > 0
		})
		if err != nil {
			return err
		}
	}
	for _, start := range slices.Sorted(maps.Keys(sums)) {
		if !f(sums[start]) {
			break
		}
	}
	return nil
}

// scan calls f with the windows of one namespace that follow a position.
func (s *Store) scan(
	ctx context.Context, namespace string, q *store.UsageQuery, after *cursor.Position, f func(store.UsageRecord) bool,
) error {
	key := s.keys.starts(namespace, q.Window)
	start, name := strconv.FormatInt(ceil(q.From), 10), ""
	if after != nil {
		start, name = strconv.FormatInt(after.Start, 10), "("+member(after.ID, after.Sub)
	}
	lo, hi := "-", "+"
	if q.ID != "" {
		lo, hi = "["+q.ID+"\x00", "("+q.ID+"\x01"
	}
	for start != "" {
		if err := s.ready(ctx); err != nil {
			return err
		}
		got, err := call(ctx, &s.server, script.ListUsage, []string{key}, []string{
			s.keys.base(namespace), kindOf(q.Window, q.Of), start, strconv.FormatInt(ceil(q.To)-1, 10), name, lo, hi,
			strconv.Itoa(store.PageSize(q.Max) + 1), q.Sub,
		}, asArray)
		if err == nil && len(got)%3 != 2 {
			err = layout.ErrFormat
		}
		if err == nil {
			start, err = got[0].ToString()
		}
		if err == nil {
			name, err = got[1].ToString()
		}
		for i := 2; err == nil && i < len(got); i += 3 {
			var r store.UsageRecord
			if r, err = windowOf(got[i:]); err != nil {
				break
			}
			if r.Window = q.Window; !f(r) {
				return nil
			}
		}
		if err != nil {
			return s.trouble("usage", key, err)
		}
	}
	return nil
}

// windowOf returns a window from the reply of a script.
func windowOf(reply []rueidis.RedisMessage) (r store.UsageRecord, err error) {
	start, err := reply[0].AsInt64()
	if err != nil {
		return r, err
	}
	name, err := reply[1].ToString()
	if err != nil {
		return r, err
	}
	fields, err := reply[2].AsStrSlice()
	if err != nil {
		return r, err
	}
	r.Start = time.Unix(start, 0).UTC()
	r.ID, r.Sub, _ = strings.Cut(name, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		if n, err := strconv.ParseInt(fields[i+1], 10, 64); err == nil && fields[i] != "" {
			r.Counts = ledger.AddLetter(r.Counts, fields[i][0], fields[i][1:], n)
		}
	}
	return r, nil
}

// ceil returns a time in seconds, rounded up.
func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// Ledger returns a ledger that keeps windows for as long as retention specifies. By default it keeps hours for 7 days
// and days for 90, because they take the server's memory, and months forever.
func (s *Store) Ledger(retention store.Retention) *Ledger {
	const day = 24 * time.Hour
	var keep []byte
	for _, d := range []struct{ is, otherwise time.Duration }{
		{retention.Hourly, 7 * day}, {retention.Daily, 90 * day}, {retention.Monthly, -1},
	} {
		d.is = cmp.Or(d.is, d.otherwise)
		keep = binary.BigEndian.AppendUint64(keep, math.Float64bits(float64(max(d.is, 0).Milliseconds())))
	}
	return &Ledger{s: s, keep: string(keep), swept: make(map[string]time.Time)}
}

// space is a namespace that has usage, or will have.
type space struct {
	id    string
	fresh bool // usage begins at the current counters of births not yet known
}

// spaces returns the namespaces known to have usage, after adding more to them.
func (s *Store) spaces(ctx context.Context, more []string) (last string, all []space, err error) {
	keys := []string{s.keys.names(), s.keys.passed(), s.keys.unbegun()}
	got, err := call(ctx, &s.server, script.Names, keys, append([]string{s.now()}, more...), asStrings)
	if err == nil && (len(got)%2 != 1 || len(got[0]) != 8 && (got[0] != "" || len(more) > 0)) {
		err = layout.ErrFormat
	}
	if err != nil {
		return "", nil, s.trouble("usage", s.keys.names(), err)
	}
	for i := 1; i < len(got); i += 2 {
		all = append(all, space{got[i], got[i+1] == "1"})
	}
	return got[0], all, nil
}
