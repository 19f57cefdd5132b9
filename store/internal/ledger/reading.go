package ledger

import (
	"encoding/binary"
	"slices"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

// Count is the value of one growing counter.
type Count struct {
	Limit  string // "": of the bucket
	Figure Figure
	Value  int64
}

// AddCount adds a counter, or adds its value to that of the same name, which several overriding limits may share.
func AddCount(counts []Count, limit string, f Figure, n int64) []Count {
	if n == 0 {
		return counts
	}
	for i := range counts {
		if counts[i].Limit == limit && counts[i].Figure == f {
			counts[i].Value = clock.Add(counts[i].Value, n)
			return counts
		}
	}
	return append(counts, Count{limit, f, n})
}

// Reading is the state of the counters of one birth.
type Reading struct {
	ID     uint64 // of the birth
	Minute int64  // of the last change
	Counts []Count
	// Base means that these counts were already booked, or precede everything that was: an unknown birth starts from
	// them.
	Base  bool
	Ended bool // nothing more of this or an earlier birth can come
}

// Observation is a reading, and whose it is.
type Observation struct {
	Bucket store.Bucket
	Source string // "": the bucket's own counters; otherwise those of a process
	Reading
}

// ReadingOf returns the reading in a bucket's state.
func ReadingOf(st *store.State) Reading {
	r := Reading{ID: st.ID, Minute: MinuteOf(st.At), Counts: make([]Count, 0, 1+2*len(st.Limits))}
	r.Counts = AddCount(r.Counts, "", Requests, st.Takes)
	for i := range st.Limits {
		l := &st.Limits[i]
		r.Counts = AddCount(r.Counts, l.Limit.Name, Debited, l.Debited)
		r.Counts = AddCount(r.Counts, l.Limit.Name, Returned, l.Returned)
	}
	return r
}

// Observations converts the readings of processes.
func Observations(readings []store.Reading) ([]Observation, error) {
	out := make([]Observation, len(readings))
	for i := range readings {
		r := &readings[i]
		if r.Source == "" || r.ID == 0 || r.Bucket.Namespace == "" || r.Bucket.Entity == "" || r.Bucket.Resource == "" {
			return nil, store.ErrInvalid
		}
		out[i] = Observation{r.Bucket, r.Source, Reading{ID: r.ID, Minute: MinuteOf(r.At)}}
		for j := range r.Counts {
			for f := range figures {
				if v := *Field(&r.Counts[j].Figures, f); v != 0 && f != Peak {
					out[i].Counts = append(out[i].Counts, Count{r.Counts[j].Limit, f, v})
				}
			}
		}
	}
	return out, nil
}

// MergeReading adds a reading to those of a source. Adjacent readings of a birth in one minute become one.
func MergeReading(readings []Reading, r Reading) []Reading {
	n := len(readings)
	if n == 0 || r.Base || readings[n-1].Base || readings[n-1].ID != r.ID || readings[n-1].Minute != r.Minute {
		return append(readings, r)
	}
	last := &readings[n-1]
	for _, c := range r.Counts {
		i := slices.IndexFunc(last.Counts, func(o Count) bool { return o.Figure == c.Figure && o.Limit == c.Limit })
		if i < 0 {
			last.Counts = append(last.Counts, c)
		} else {
			last.Counts[i].Value = max(last.Counts[i].Value, c.Value)
		}
	}
	return readings
}

// AppendTold appends the encoding of a process's observations, for others to read.
func AppendTold(buf []byte, obs []Observation) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(obs)))
	for i := range obs {
		o := &obs[i]
		buf = varint.AppendText(varint.AppendText(buf, o.Bucket.Entity), o.Bucket.Resource)
		buf = binary.AppendVarint(binary.AppendUvarint(buf, o.ID), o.Minute)
		buf = binary.AppendUvarint(buf, uint64(len(o.Counts)))
		for _, c := range o.Counts {
			buf = binary.AppendVarint(append(varint.AppendText(buf, c.Limit), byte(c.Figure)), c.Value)
		}
	}
	return buf
}

// DecodeTold decodes what [AppendTold] appended, without namespace and source.
func DecodeTold(raw []byte) ([]Observation, error) {
	d := varint.Reader{Rest: raw}
	var obs []Observation
	for range d.Count() {
		o := Observation{
			Bucket:  store.Bucket{Entity: d.Text(), Resource: d.Text()},
			Reading: Reading{ID: d.Uvarint(), Minute: d.Varint()},
		}
		for range d.Count() {
			c := Count{d.Text(), Figure(d.Byte()), d.Varint()}
			if c.Figure >= figures {
				return nil, errDecode
			}
			o.Counts = append(o.Counts, c)
		}
		obs = append(obs, o)
	}
	return obs, whole(&d)
}
