package disk

import (
	"cmp"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// finish writes everything that the file does not hold yet. The committer has stopped. A take in flight at Close either
// locks its bucket before finish does, and is written, or finds the store closed, and is not answered.
func (j *journal) finish(clean bool) error {
	if !j.touched.Load() {
		return nil
	}
	j.gate.Lock() // an id and the effects of its settle are written together or not at all
	defer j.gate.Unlock()
	j.mu.Lock()
	w := j.work
	j.work = work{}
	j.mu.Unlock()
	if j.mode == Off {
		j.table.Settled(func(id string, expires time.Time) {
			w.marks = append(w.marks, mark{id: id, expires: expires})
		})
	}
	for clean && len(w.gone) > 0 { // before the records, some of which have the same keys
		n := min(len(w.gone), maxChunk)
		c := &chunk{at: j.table.Now()}
		j.unwanted(c, w.gone[:n])
		if err := j.write(c); err != nil {
			return err
		}
		w.gone = w.gone[n:]
	}
	var dirty []entry
	j.table.Each(func(b *inmem.Bucket, _ store.Bucket) bool {
		if b.Dirty {
			dirty = append(dirty, entry{b.Key(), b})
		}
		return true
	})
	slices.SortFunc(dirty, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	c := &chunk{at: j.table.Now(), marks: w.marks}
	for _, e := range dirty {
		j.exact(c, e.b)
		if len(c.records) == maxChunk {
			if err := j.write(c.done()); err != nil {
				return err
			}
			c = &chunk{at: c.at}
		}
	}
	return j.file.update(func(tx *bolt.Tx) error { return j.file.put(tx, c.done(), clean) })
}

// exact adds a bucket's record with its true levels to c.
func (j *journal) exact(c *chunk, b *inmem.Bucket) {
	b.Lock()
	defer b.Unlock()
	if b.Dead() {
		return
	}
	slots := make([]inmem.Reserved, b.Len())
	for i := range slots {
		slots[i].Next = b.Level(i)
	}
	c.add(b, slots)
	b.Dirty = false
}
