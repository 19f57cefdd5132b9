package disk

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
)

// maxChunk is the largest number of buckets in one transaction, so that a transaction does not delay the work behind
// it.
const maxChunk = 10_000

// run is the committer. Changes that arrive while it writes form the next transaction. Only [Interval] mode waits for a
// timer.
func (j *journal) run() {
	defer close(j.stopped)
	var tick <-chan time.Time
	if j.mode == Interval {
		t := time.NewTicker(j.interval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-j.wake:
			j.flush(j.mode.waits())
		case <-tick:
			j.flush(true)
		case <-j.stop:
			j.mu.Lock()
			j.closed = true
			j.mu.Unlock()
			j.flush(j.mode.waits())
			return
		}
	}
}

// flush writes the waiting work; if buckets is false, only the catalog.
func (j *journal) flush(buckets bool) {
	runtime.Gosched()                     // lets callers released by the last transaction join this one
	buckets = buckets && j.touched.Load() // the full buckets that Open found can wait for a change
	j.mu.Lock()
	w, ticket := j.work, j.next
	if buckets = buckets || w.awaited; buckets {
		j.work, j.next = work{}, newBatch()
		j.flushing = w.since
	} else {
		w = work{ops: w.ops}
		j.work.ops = nil
	}
	j.mu.Unlock()
	if !buckets {
		if len(w.ops) > 0 {
			_ = j.write(&chunk{ops: w.ops, at: j.table.Now()}) // each op gets the error
		}
		return
	}
	if j.mode == Interval {
		j.behind.Store(true)
		defer j.behind.Store(false)
	}
	if len(w.gone) > 0 && j.usage != nil {
		_ = j.usage.settle() // if it cannot be written, it is retried for as long as the process lives
	}
	slices.SortFunc(w.queue, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	c := &chunk{ticket: ticket, ops: w.ops}
	var err error
	for first := true; first || len(w.queue)+len(w.gone) > 0; first = false {
		n, m := min(len(w.queue), maxChunk), min(len(w.gone), maxChunk)
		if !first {
			c = &chunk{ticket: ticket}
		}
		c.marks = w.marks
		w.marks = nil
		j.collect(c, w.queue[:n], w.gone[:m])
		w.queue, w.gone = w.queue[n:], w.gone[m:]
		if err = j.write(c); err != nil {
			j.landed(c, err)
			break
		}
		j.landed(c, nil)
	}
	if err != nil {
		j.giveUp(w, ticket)
	}
	j.mu.Lock()
	j.flushing = time.Time{}
	j.mu.Unlock()
	ticket.err = err
	close(ticket.done)
}

// chunk is the content of one transaction.
type chunk struct {
	ticket  *batch
	records []record
	gone    []string
	marks   []mark
	ops     []*op
	at      int64 // no earlier than the last decision on any bucket in it
	format  byte  // that the records need; 0 means the first
	buf     []byte
}

type record struct {
	entry
	value      []byte
	start, end int // position of the value in the chunk's buf, while buf grows
}

// collect records the state of the queued buckets, and of the buckets of all settles with an id so far. From here on,
// answers may rely on what these records will hold.
func (j *journal) collect(c *chunk, queue []entry, gone []string) {
	j.gate.Lock()
	defer j.gate.Unlock()
	j.mu.Lock()
	c.marks = append(c.marks, j.work.marks...)
	j.work.marks = nil
	j.mu.Unlock()
	c.at = j.table.Now()
	c.records = make([]record, 0, len(queue)+len(c.marks))
	for _, e := range queue {
		j.take(c, e.b, false)
	}
	for _, m := range c.marks {
		for _, b := range m.bs {
			j.take(c, b, true)
		}
	}
	c.done()
	if len(c.marks) > 0 { // otherwise they are in order
		slices.SortStableFunc(c.records, func(a, b record) int { return cmp.Compare(a.key, b.key) })
	}
	j.unwanted(c, gone)
}

// unwanted adds the records to delete, except those whose bucket has since been created again and written.
func (j *journal) unwanted(c *chunk, gone []string) {
	for _, key := range gone {
		stored := false
		j.table.Live(key, func(b *inmem.Bucket) { stored = b.Stored })
		if !stored {
			c.gone = append(c.gone, key)
		}
	}
}

// take records a bucket's state, unless another chunk has done so since the bucket was queued.
func (j *journal) take(c *chunk, b *inmem.Bucket, marked bool) {
	b.Lock()
	defer b.Unlock()
	r := b.Reserve()
	if b.Dead() || r == nil || r.Queued == nil && !marked {
		return
	}
	c.at = max(c.at, b.Head().At)
	j.plan(b, r, c.at)
	c.add(b, r.Slots)
	r.Queued, r.Flight, b.Stored = nil, c.ticket, true
}

// add records the state of a locked bucket, with the levels to make durable.
func (c *chunk) add(b *inmem.Bucket, slots []inmem.Reserved) {
	head := b.Head()
	c.at = max(c.at, head.At)
	start := len(c.buf)
	c.buf = appendRecord(c.buf, b.Key(), &head, b, slots)
	for i := range slots {
		switch b.Limit(i).Limit.Params().Kind() {
		case clock.Rate:
		case clock.Slots:
			c.format = format
		default:
			c.format = max(c.format, quotas)
		}
	}
	c.records = append(c.records, record{entry: entry{b.Key(), b}, start: start, end: len(c.buf)})
}

// done slices the records' values out of buf.
func (c *chunk) done() *chunk {
	for i := range c.records {
		r := &c.records[i]
		r.value = c.buf[r.start:r.end:r.end]
	}
	return c
}

// landed records in the buckets of a chunk whether it was committed.
func (j *journal) landed(c *chunk, err error) {
	var again []entry
	for i := range c.records {
		e := c.records[i].entry
		e.b.Lock()
		r := e.b.Reserve()
		if r.Flight == c.ticket {
			r.Flight = nil
			if err == nil {
				for k := range r.Slots {
					r.Slots[k].Bound = r.Slots[k].Next
				}
			}
		}
		if err != nil {
			e.b.Dirty = true
			if j.mode == Interval && r.Queued == nil && !e.b.Dead() {
				again = append(again, e)
			}
		}
		e.b.Unlock()
	}
	if err == nil {
		return
	}
	// An id that was taken goes into the next transaction: it must never be taken again.
	j.mu.Lock()
	j.work.marks = append(j.work.marks, c.marks...)
	j.work.gone = append(j.work.gone, c.gone...)
	j.mu.Unlock()
	j.requeue(again)
}

// giveUp puts back the work that a failed flush did not reach.
func (j *journal) giveUp(w work, ticket *batch) {
	j.mu.Lock()
	j.work.gone = append(j.work.gone, w.gone...)
	if j.mode == Interval || len(j.work.gone)+len(j.work.marks) > 0 {
		j.work.since = w.since
	}
	j.mu.Unlock()
	for _, e := range w.queue {
		e.b.Lock()
		if r := e.b.Reserve(); r.Queued == ticket {
			r.Queued = nil
		}
		e.b.Unlock()
	}
	if j.mode == Interval {
		j.requeue(w.queue)
	}
}

// requeue queues buckets for the next tick.
func (j *journal) requeue(entries []entry) {
	for _, e := range entries {
		e.b.Lock()
		if r := e.b.Reserve(); r.Queued == nil && !e.b.Dead() {
			j.enqueue(e.b, r)
		}
		e.b.Unlock()
	}
}

// op is a catalog commit, or the removal of credits, that waits to be written.
type op struct {
	puts  []pair // a pair without a value deletes the key
	begin bool   // marks the store as in use
	err   error
	done  chan struct{}
}

// Wait implements [inmem.Ticket].
func (o *op) Wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

type pair struct {
	bucket, key, value []byte
}

// persist writes a catalog commit and returns when it is durable.
func (j *journal) persist(records []store.Record, epochs map[string]uint64) error {
	o := &op{done: make(chan struct{})}
	for i := range records {
		p := pair{bucket: catalogBucket, key: catalogKey(records[i].Key)}
		if len(p.key) > maxKey {
			return store.ErrInvalid
		}
		if records[i].Version != 0 {
			p.value = encodeCatalog(p.key, &records[i])
		}
		o.puts = append(o.puts, p)
	}
	for ns, e := range epochs {
		key := []byte(ns)
		if len(key) > maxKey {
			return store.ErrInvalid
		}
		o.puts = append(o.puts, pair{epochBucket, key, encodeEpoch(key, e)})
	}
	return j.apply(o)
}

// apply returns when an op is durable.
func (j *journal) apply(o *op) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return store.ErrClosed
	}
	j.work.ops = append(j.work.ops, o)
	j.mu.Unlock()
	j.kick()
	<-o.done
	return o.err
}

// figures are what Stats reports, besides the waiting work. The journal's mu guards them.
type figures struct {
	flushing         time.Time // when the oldest change now being written began to wait
	commits, records uint64
	last             error
}

func (j *journal) stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	st := Stats{Commits: j.commits, Records: j.figures.records, Err: j.last}
	if since := cmp.Or(j.flushing, j.work.since); !since.IsZero() && j.mode != Off {
		st.Lag = time.Since(since)
	}
	return st
}

// write writes a chunk in one transaction and completes its catalog commits.
func (j *journal) write(c *chunk) error {
	if len(c.records)+len(c.gone)+len(c.marks)+len(c.ops) == 0 {
		return nil
	}
	err := j.file.update(func(tx *bolt.Tx) error { return j.file.put(tx, c, false) })
	j.mu.Lock()
	for _, o := range c.ops {
		if o.begin {
			j.first = nil
			j.begun.Store(err == nil)
		}
		o.err = err
		close(o.done)
	}
	j.last = err
	if err == nil {
		j.commits++
		j.figures.records += uint64(len(c.records))
	}
	j.mu.Unlock()
	return err
}
