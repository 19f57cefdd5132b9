package redis

import (
	"encoding/binary"
	"strings"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// account is the state of one source of readings: the minute of the last reading, the bucket as it was then, and what
// was counted from it. Comparing the bucket with its current value tells a script that nothing is new.
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
	if len(raw) < 6 || len(raw) < 6+read16(raw[4:]) {
		return errFormat
	}
	end := 6 + read16(raw[4:])
	a.minute, a.mark = read32(raw), raw[6:end]
	return a.seen.Decode([]byte(raw[end:]))
}

// entryOf returns the entry for a bucket, given its member of the index, or of the births that have ended, and its value.
func (s *Store) entryOf(ns space, name, raw string) *entry {
	entity, resource, _ := strings.Cut(name, "\x00")
	e := &entry{Bucket: store.Bucket{Namespace: ns.id, Entity: entity, Resource: resource}, Account: booked{field: name}}
	st, err := parseBucket(e.Bucket, raw)
	if err != nil {
		s.bad(e, err)
		return e
	}
	r := ledger.ReadingOf(&st)
	r.Base = ns.fresh
	e.Readings, e.Account.next = []ledger.Reading{r}, raw[:headSize+slotSize*len(st.Limits)]
	return e
}

// leftEntry returns the entry for a birth that has ended.
func (s *Store) leftEntry(ns space, raw string) *entry {
	var e *entry
	if len(raw) < 2 || len(raw) < 2+read16(raw) {
		e = &entry{Bucket: store.Bucket{Namespace: ns.id}}
		s.bad(e, errFormat)
	} else {
		end := 2 + read16(raw)
		e = s.entryOf(ns, raw[2:end], raw[end:])
	}
	e.Account.next, e.Account.left = "", []string{raw}
	return e
}
