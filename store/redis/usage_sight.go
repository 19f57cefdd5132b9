package redis

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/usage"
	"github.com/weirlimits/weir/store"
)

// entry is what there is to book for one account.
type entry struct {
	hash, field string
	bucket      store.Bucket
	sights      []usage.Sight
	old         *string  // the account, if it has been read
	mark        string   // head and slots of the bucket as seen; "" if not seen
	left        []string // entries to remove from the list of ended births
	bad         error    // why nothing can be booked
}

// account is the state of one source of readings: the minute of the last reading, the bucket as it was then, and what
// was counted from it. Comparing the bucket with its current value tells a script that nothing is new.
type account struct {
	minute uint32
	mark   string
	seen   usage.Source
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
	if len(raw) < 6 || len(raw) < 6+read16(raw[4:]) {
		return errFormat
	}
	end := 6 + read16(raw[4:])
	a.minute, a.mark = read32(raw), raw[6:end]
	return a.seen.Decode([]byte(raw[end:]))
}

// see adds an entry's readings to the account and returns the changes.
func (a *account) see(e *entry) []usage.Delta {
	late := int64(lateBirth)
	if e.hash == ofProcesses {
		late = lateProcess
	}
	for i := range e.sights {
		a.minute = max(a.minute, uint32(max(e.sights[i].Minute, 0)))
	}
	if e.mark != "" && len(e.mark) <= math.MaxUint16 {
		a.mark = e.mark
	}
	return a.seen.See(e.sights, late)
}

// sightOf returns the reading in a bucket's value, and the part of the value that changes with every write.
func sightOf(b store.Bucket, raw string) (usage.Sight, string, error) {
	st, err := parseBucket(b, raw)
	if err != nil {
		return usage.Sight{}, "", err
	}
	x := usage.Sight{ID: st.ID, Minute: usage.MinuteOf(st.At)}
	add := func(limit string, f usage.Figure, n int64) {
		i := slices.IndexFunc(x.Counts, func(c usage.Count) bool { return c.Limit == limit && c.Figure == f })
		switch {
		case n == 0:
		case i < 0:
			x.Counts = append(x.Counts, usage.Count{Limit: limit, Figure: f, Value: n})
		default: // overriding limits may share a name
			if x.Counts[i].Value += n; x.Counts[i].Value < 0 {
				x.Counts[i].Value = 1<<63 - 1
			}
		}
	}
	add("", usage.Requests, st.Takes)
	for i := range st.Limits {
		l := &st.Limits[i]
		add(l.Limit.Name, usage.Debited, l.Debited)
		add(l.Limit.Name, usage.Returned, l.Returned)
	}
	return x, raw[:headSize+slotSize*len(st.Limits)], nil
}

// parents returns a function that looks up ancestors, each entity once.
func (s *Store) parents(namespace string) parents {
	known := make(map[string]string)
	return func(ctx context.Context, entities []string) (map[string][]string, error) {
		chains := make(map[string][]string, len(entities))
		at := make(map[string]string, len(entities)) // how far each chain has got
		for _, e := range entities {
			at[e] = e
		}
		if len(known) > 100_000 {
			clear(known)
		}
		for depth := 0; depth < maxChain && len(at) > 0; depth++ {
			var keys []store.Key
			asked := make(map[string]bool)
			for _, e := range at {
				if _, ok := known[e]; !ok && !asked[e] {
					asked[e] = true
					keys = append(keys, store.Key{Namespace: namespace, Kind: store.KindEntity, ID: e})
				}
			}
			if len(keys) > 0 {
				got, err := s.Get(ctx, keys...)
				if err != nil {
					return nil, err
				}
				for i := range got.Records {
					known[keys[i].ID] = got.Records[i].Parent
				}
			}
			for from, e := range at {
				up := known[e]
				if up == "" || slices.Contains(chains[from], up) {
					delete(at, from)
					continue
				}
				chains[from], at[from] = append(chains[from], up), up
			}
		}
		return chains, nil
	}
}

// leftEntry returns the entry for an ended birth.
func leftEntry(ns space, raw string) entry {
	e := entry{hash: ofBuckets, left: []string{raw}, bad: errFormat}
	if len(raw) < 2 || len(raw) < 2+read16(raw) {
		return e
	}
	end := 2 + read16(raw)
	entity, resource, _ := strings.Cut(raw[2:end], "\x00")
	e.field, e.bucket = raw[2:end], store.Bucket{Namespace: ns.id, Entity: entity, Resource: resource}
	x, _, err := sightOf(e.bucket, raw[end:])
	x.Base = ns.fresh
	e.sights, e.bad = []usage.Sight{x}, err
	return e
}
