package disk

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// journal makes buckets durable: it collects changes, and its committer writes them.
//
// Lock order: gate, a bucket's lock, mu. The committer holds no lock while it writes.
type journal struct {
	journalConfig
	committer

	closing atomic.Bool // nothing is admitted any more
	touched atomic.Bool // something has changed since Open
	begun   atomic.Bool // the file is marked as not closed
	// Callers do not wait for the committer, so those that keep all processors busy must yield to it.
	behind atomic.Bool

	// gate is held for reading by a settle with an id, and for writing while the committer collects, so that a settle's
	// buckets and its id are in one transaction.
	gate sync.RWMutex

	mu     sync.Mutex
	work   work
	next   *batch
	first  *op  // in flight; sets begun
	closed bool // the committer has stopped
	figures
}

// journalConfig is what a journal writes, and where: set when the store is opened.
type journalConfig struct {
	mode     Mode
	interval time.Duration
	file     *file
	table    *inmem.Table
	usage    *meter // nil: no usage is kept
}

// committer is the state of the goroutine that writes.
type committer struct {
	wake    chan struct{}
	stop    chan struct{}
	stopped chan struct{}
}

// work is what waits to be written.
type work struct {
	queue []entry  // changed buckets
	gone  []string // keys of buckets whose records must be deleted
	marks []mark   // ids of settles, and credits
	ops   []*op    // catalog commits
	since time.Time
	// awaited is set if somebody waits for it in a mode that else writes at intervals, or not at all.
	awaited bool
}

type entry struct {
	key string
	b   *inmem.Bucket
}

// mark is a settle's id, or a credit. Its buckets are written with it, so that neither is durable without the other.
type mark struct {
	id      string
	expires time.Time
	credit  int64 // of a credit: its amount
	bs      []*inmem.Bucket
}

// batch is the ticket for everything that is written together.
type batch struct {
	done chan struct{}
	err  error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// Wait implements [inmem.Ticket].
func (b *batch) Wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused is the ticket for changes after Close.
var refused = func() *batch {
	b := newBatch()
	b.err = store.ErrClosed
	close(b.done)
	return b
}()

var _ inmem.Journal = (*journal)(nil)

// Changed implements [inmem.Journal].
func (j *journal) Changed(b *inmem.Bucket, c inmem.Change) inmem.Ticket {
	if j.closing.Load() {
		b.Dirty = b.Dirty || c == inmem.Settled // Close may yet write the id of what was settled
		return refused
	}
	var begin inmem.Ticket
	if !j.begun.Load() {
		begin = j.begin()
	}
	r := b.Reserve()
	if c == inmem.Forgotten {
		return or(j.forgotten(b), begin)
	}
	if r == nil {
		r = new(inmem.Reserve)
		b.SetReserve(r)
	}
	b.Dirty = true
	return or(j.changed(b, r, c), begin)
}

// changed returns the ticket that a change of a bucket must wait for, if any.
func (j *journal) changed(b *inmem.Bucket, r *inmem.Reserve, c inmem.Change) inmem.Ticket {
	switch {
	case j.mode == Off || c == inmem.Undone:
		return nil
	case j.mode == Interval:
		if r.Queued == nil {
			j.enqueue(b, r)
		}
		return nil
	case j.mode == Always && c == inmem.Debited:
	case len(r.Slots) == b.Len():
		durable, underway := covered(b, r)
		if durable {
			return nil
		}
		if underway {
			return r.Flight
		}
	}
	if r.Queued != nil {
		return r.Queued
	}
	return j.enqueue(b, r)
}

func or(t, u inmem.Ticket) inmem.Ticket {
	if t != nil {
		return t
	}
	return u
}

// begin marks the file as not closed, before a counter that is ahead of the file's is returned to anybody.
func (j *journal) begin() inmem.Ticket {
	j.touched.Store(true)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.begun.Load():
		return nil
	case j.closed:
		return refused
	case j.first == nil:
		j.first = &op{begin: true, done: make(chan struct{})}
		j.work.ops = append(j.work.ops, j.first)
		j.kick()
	}
	return j.first
}

// settled waits until the state in memory may be shown to readers.
func (j *journal) settled(ctx context.Context) {
	if !j.touched.Load() || j.begun.Load() {
		return
	}
	j.mu.Lock()
	first := j.first
	j.mu.Unlock()
	if first != nil {
		_ = first.Wait(ctx) // the caller that made the change gets the error
	}
}

// covered reports whether all levels are within the durable bounds, or within those that a commit in flight makes
// durable.
func covered(b *inmem.Bucket, r *inmem.Reserve) (durable, underway bool) {
	durable, underway = true, r.Flight != nil
	for i := range r.Slots {
		level := b.Level(i)
		durable = durable && level <= r.Slots[i].Bound
		underway = underway && level <= r.Slots[i].Next
	}
	return durable, underway
}

// enqueue queues a locked bucket for the next transaction.
func (j *journal) enqueue(b *inmem.Bucket, r *inmem.Reserve) inmem.Ticket {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return refused
	}
	r.Queued = j.next
	j.work.queue = append(j.work.queue, entry{b.Key(), b})
	j.started()
	j.mu.Unlock()
	if j.mode.waits() {
		j.kick()
	}
	return r.Queued
}

func (j *journal) forgotten(b *inmem.Bucket) inmem.Ticket {
	if !b.Stored {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.work.gone = append(j.work.gone, b.Key())
	j.started()
	if !j.mode.waits() {
		return nil
	}
	if j.closed {
		return refused
	}
	j.kick()
	return j.next
}

// Once implements [inmem.Journal].
func (j *journal) Once(id string, expires time.Time, bs []*inmem.Bucket) inmem.Ticket {
	if j.mode == Off {
		j.touched.Store(true)
		return nil // Close gets the ids from the table
	}
	there := slices.DeleteFunc(slices.Clone(bs), func(b *inmem.Bucket) bool { return b == nil })
	if !j.begun.Load() {
		j.begin()
	}
	return j.mark(mark{id: id, expires: expires, bs: there}, j.mode.waits())
}

// Credited implements [inmem.Journal].
func (j *journal) Credited(b *inmem.Bucket, id string, amount int64) inmem.Ticket {
	return j.mark(mark{id: id, credit: amount, bs: []*inmem.Bucket{b}}, true)
}

// mark adds a mark to the next transaction, and returns its ticket if the answer waits for it.
func (j *journal) mark(m mark, waits bool) inmem.Ticket {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.work.marks = append(j.work.marks, m)
	j.started()
	switch {
	case j.closed:
		return refused
	case !waits:
		return nil
	}
	j.work.awaited = true
	j.kick()
	return j.next
}

// Recorded implements [inmem.Journal].
func (j *journal) Recorded(id string) (amount int64, err error) {
	err = guarded(func() error {
		return j.file.db.View(func(tx *bolt.Tx) error {
			if b := tx.Bucket(creditBucket); b != nil {
				amount, err = decodeCredit([]byte(id), b.Get([]byte(id)))
			}
			return err
		})
	})
	return amount, err
}

// forgetCredits removes the credits that were recorded under ids with a prefix, and returns when that is durable.
func (j *journal) forgetCredits(prefix []byte) error {
	o := &op{done: make(chan struct{})}
	err := guarded(func() error {
		return j.file.db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket(creditBucket)
			if b == nil {
				return nil
			}
			c := b.Cursor()
			for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
				o.puts = append(o.puts, pair{bucket: creditBucket, key: bytes.Clone(k)})
			}
			return nil
		})
	})
	if err != nil || len(o.puts) == 0 {
		return err
	}
	return j.apply(o)
}

// Evicted implements [inmem.Journal]. A later transaction deletes the record. Until then, and after a crash, the bucket
// still owes what was reserved.
func (j *journal) Evicted(b *inmem.Bucket) {
	if b.Stored {
		j.mu.Lock()
		j.work.gone = append(j.work.gone, b.Key())
		j.mu.Unlock()
	}
}

// started records when the oldest change began to wait. The journal is locked.
func (j *journal) started() {
	if j.work.since.IsZero() {
		j.work.since = time.Now()
	}
}

// kick wakes the committer.
func (j *journal) kick() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}
