package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
	"github.com/weirlimits/weir/store/redis/internal/layout"
	"github.com/weirlimits/weir/store/redis/internal/script"
)

const (
	// bookAtOnce is how many accounts one script changes, with their windows: other calls wait for it.
	bookAtOnce = 8
	// lateBirth is for how many minutes an account remembers a birth after a later one was seen, and for how many the
	// account is kept after its bucket has gone. Ended births are listed as such, and the next pass books them.
	lateBirth = 6 * 60
	// lateProcess and keepProcess are for how many minutes a process's account remembers counters after later ones, and
	// for how many it is kept.
	lateProcess, keepProcess = 60, 3 * 24 * 60
)

// Hashes of accounts.
const (
	ofBuckets   = "ua"
	ofProcesses = "up"
)

var errUnkept = errors.New("the usage keys were deleted")

// books keeps the accounts of buckets or of processes in one namespace, and the namespace's windows: a back end of the
// ledger.
type books struct {
	s         *Store
	namespace string
	hash      string // ofBuckets or ofProcesses
	parents   ledger.Parents
}

func newBooks(s *Store, namespace, hash string) *books {
	b := &books{s: s, namespace: namespace, hash: hash}
	b.parents = ledger.Parents{Look: b.lookUp, Keep: time.Hour, Now: time.Now}
	return b
}

// entry is what there is to book for one account.
type entry = ledger.Entry[booked]

// booked is an account while it is booked.
type booked struct {
	account

	field string   // in the hash of accounts
	old   *string  // the account, if it came with the bucket
	was   string   // the account as it was read
	next  string   // head and slots of the bucket as seen; "" if not seen
	left  []string // entries to remove from the list of ended births
	bad   bool     // the account or the bucket cannot be read
}

// bad marks an entry that cannot be booked.
func (b *books) bad(e *entry, err error) {
	e.Account.bad, e.Err = true, b.s.trouble("usage", e.Bucket.String(), err)
}

// book books entries. It returns how many it booked, and an error for each that is damaged and cannot be. errUnkept
// reports that nobody keeps the namespace's usage.
func (b *books) book(ctx context.Context, entries []*entry) (booked int, bad []error, err error) {
	err = ledger.Book(ctx, b, entries)
	var left []string
	for _, e := range entries {
		switch {
		case e.Err == nil:
			booked++
		case e.Account.bad:
			bad, left = append(bad, e.Err), append(left, e.Account.left...) // an ended birth cannot be repaired
		case errors.Is(e.Err, ledger.ErrContended):
			err = errors.Join(err, b.s.trouble("usage", e.Bucket.String(), e.Err))
		case err == nil:
			err = e.Err
		}
	}
	if len(left) > 0 && err == nil {
		key := b.s.keys.left(b.namespace)
		if _, cause := call(ctx, &b.s.server, script.Discard, []string{key}, left, asMessage); cause != nil {
			err = b.s.trouble("usage", key, cause)
		}
	}
	return booked, bad, err
}

// Room implements [ledger.Backend].
func (b *books) Room() (accounts, items int) { return bookAtOnce, ledger.Unlimited }

// Read implements [ledger.Backend].
func (b *books) Read(ctx context.Context, entries []*entry) error {
	if err := b.s.ready(ctx); err != nil {
		return err
	}
	var fields []string
	for _, e := range entries {
		if e.Account.old == nil {
			fields = append(fields, e.Account.field)
		}
	}
	var got []string
	if len(fields) > 0 {
		key := b.s.keys.base(b.namespace) + b.hash
		var err error
		if got, err = call(ctx, &b.s.server, script.Accounts, []string{key}, fields, asStrings); err == nil &&
			len(got) != len(fields) {
			err = layout.ErrFormat
		}
		if err != nil {
			return b.s.trouble("usage", entries[0].Bucket.String(), err)
		}
	}
	for _, e := range entries {
		a := &e.Account
		if a.old != nil {
			a.was, a.old = *a.old, nil
		} else {
			a.was, got = got[0], got[1:]
		}
		if err := a.parse(a.was); err != nil {
			b.bad(e, err)
		}
	}
	return nil
}

// See implements [ledger.Backend].
func (b *books) See(e *entry, readings []ledger.Reading) ([]ledger.Delta, bool) {
	a := &e.Account
	for i := range readings {
		a.minute = max(a.minute, uint32(max(readings[i].Minute, 0)))
	}
	if a.next != "" && len(a.next) <= math.MaxUint16 {
		a.mark = a.next
	}
	late := int64(lateBirth)
	if b.hash == ofProcesses {
		late = lateProcess
	}
	return a.seen.See(readings, late), true
}

// Parents implements [ledger.Backend].
func (b *books) Parents(ctx context.Context, entities []store.Key) ([]string, error) {
	return b.parents.Of(ctx, entities)
}

func (b *books) lookUp(ctx context.Context, entities []store.Key) ([]string, error) {
	got, err := b.s.Get(ctx, entities...)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(entities))
	for i := range got.Records {
		out[i] = got.Records[i].Parent
	}
	return out, nil
}

// Apply implements [ledger.Backend].
func (b *books) Apply(ctx context.Context, entries []*entry, sums ledger.Sums) error {
	var left []string
	for _, e := range entries {
		left = append(left, e.Account.left...)
	}
	args := []string{
		b.s.now(), b.s.keys.base(b.namespace),
		strconv.Itoa(len(entries)), strconv.Itoa(len(sums)), strconv.Itoa(len(left)),
	}
	for _, e := range entries {
		a := &e.Account
		args = append(args, b.hash, a.field, a.was, string(a.append(nil)))
	}
	for w, counts := range sums {
		var figures []string
		for i := range counts {
			ledger.Letters(&counts[i].Figures, func(letter string, n int64) {
				figures = append(figures, letter+counts[i].Limit, strconv.FormatInt(n, 10))
			})
		}
		end := w.Type.Next(time.Unix(w.Start, 0).UTC()).Unix()
		args = append(
			args, kindOf(w.Type, w.Of), strconv.FormatInt(w.Start, 10), strconv.FormatInt(end, 10), member(w.ID, w.Sub),
			strconv.Itoa(len(figures)/2),
		)
		args = append(args, figures...)
	}
	keys := []string{b.s.keys.meter(b.namespace)}
	answer, err := call(ctx, &b.s.server, script.Book, keys, append(args, left...), asString)
	switch {
	case err != nil:
		return b.s.trouble("usage", entries[0].Bucket.String(), err)
	case answer == "N":
		return errUnkept
	case answer != "A":
		return ledger.ErrChanged
	}
	return nil
}

// kindOf returns a window's type and what it counts, as in keys.
func kindOf(w store.Window, of store.UsageOf) string { return string([]byte{w[0], byte(of)}) }

// account is the state of one source of readings: the minute of the last reading, the bucket as it was then, and what
// was counted from it. By comparing the bucket with its current value, a script finds out whether anything is new.
type account struct {
	minute uint32
	mark   string
	seen   ledger.Source
}

func (a *account) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, a.minute)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(a.mark)))
	return a.seen.Append(append(dst, a.mark...))
}

func (a *account) parse(raw string) error {
	*a = account{}
	if raw == "" {
		return nil
	}
	if len(raw) < 6 || len(raw) < 6+layout.Read16(raw[4:]) {
		return layout.ErrFormat
	}
	end := 6 + layout.Read16(raw[4:])
	a.minute, a.mark = layout.Read32(raw), raw[6:end]
	return a.seen.Decode([]byte(raw[end:]))
}

// entryOf returns the entry for a bucket, given its value, and its name in the index or among the births that have
// ended.
func (b *books) entryOf(ns space, name, raw string) *entry {
	entity, resource, _ := strings.Cut(name, "\x00")
	e := &entry{
		Bucket:  store.Bucket{Namespace: ns.id, Entity: entity, Resource: resource},
		Account: booked{field: name},
	}
	st, err := layout.ParseBucket(e.Bucket, raw, 0)
	if err != nil {
		b.bad(e, err)
		return e
	}
	r := ledger.ReadingOf(&st)
	r.Base = ns.fresh
	e.Readings, e.Account.next = []ledger.Reading{r}, raw[:layout.HeadSize+layout.SlotSize*len(st.Limits)]
	return e
}

// leftEntry returns the entry for a birth that has ended.
func (b *books) leftEntry(ns space, raw string) *entry {
	var e *entry
	if len(raw) < 2 || len(raw) < 2+layout.Read16(raw) {
		e = &entry{Bucket: store.Bucket{Namespace: ns.id}}
		b.bad(e, layout.ErrFormat)
	} else {
		end := 2 + layout.Read16(raw)
		e = b.entryOf(ns, raw[2:end], raw[end:])
	}
	e.Account.next, e.Account.left = "", []string{raw}
	return e
}
