// Package batch lets callers share writes. Jobs that arrive while a queue's writes are under way wait, and as many of
// them as its [Writer] chooses go together with the next write.
package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir/store"
)

// Job is a caller's request. It is a type that embeds [Waiter].
type Job interface {
	comparable
	waiter() *Waiter
}

// Waiter is a job's place in a queue. The zero value is ready; after an answer, it can be used again.
type Waiter struct {
	done     chan struct{}
	aboard   bool
	answered bool
	left     bool

	joined, boarded time.Time // when it was queued, and when its write began
}

func (w *Waiter) waiter() *Waiter { return w }

// Left reports whether the caller has stopped waiting. Whatever the job is granted must then be taken back. The queue
// must be locked.
func (w *Waiter) Left() bool { return w.left }

// Writer decides what the writes of a queue carry, and makes them. J is a job, W a prepared write.
type Writer[J Job, W any] interface {
	// Prepare chooses from the waiting jobs those of the next write. It answers jobs whose outcome is known already,
	// and returns the jobs aboard, those that keep waiting, and whether there is a write to make. If there is none, it
	// is called again once another job arrives. The queue is locked.
	Prepare(waiting []J) (w W, aboard, later []J, ok bool)
	// Write makes a prepared write. It answers the jobs aboard, except those that it returns: they wait again, ahead of
	// all others. It calls [Queue.Ended]. The queue is not locked. The next write begins after a pause.
	Write(w W, aboard []J) (again []J, pause time.Duration)
}

// Queue makes writes for jobs. Its lock also guards what the writer remembers. Create a Queue with [NewQueue].
type Queue[J Job, W any] struct {
	sync.Mutex
	group   *Group
	writer  Writer[J, W]
	free    func(writes, jobs int) bool
	waiting []J // in order
	writes  int // under way, or in the pause that follows
	jobs    int // aboard those writes

	sent    int       // writes that wait for an answer
	changed time.Time // when a write last began or ended
	trouble error     // of the write that ended last
}

// NewQueue returns a queue whose writes belong to a group. Function free reports whether another write may begin, given
// the numbers of writes and jobs under way; nil allows one write at a time.
func NewQueue[J Job, W any](group *Group, writer Writer[J, W], free func(writes, jobs int) bool) *Queue[J, W] {
	if free == nil {
		free = func(writes, _ int) bool { return writes == 0 }
	}
	return &Queue[J, W]{group: group, writer: writer, free: free}
}

// Add queues a job, and begins a write if one may begin. It returns false, without queueing the job, if the group is
// closed. The queue must be locked.
func (q *Queue[J, W]) Add(j J) bool {
	w := j.waiter()
	if w.done == nil {
		w.done = make(chan struct{}, 1)
	}
	w.aboard, w.answered, w.left, w.joined = false, false, false, time.Now()
	q.waiting = append(q.waiting, j)
	if !q.free(q.writes, q.jobs) {
		return true
	}
	if !q.group.begin() {
		if q.writes > 0 {
			return true // whoever makes that write goes on with this job
		}
		q.waiting = q.waiting[:len(q.waiting)-1]
		return false
	}
	if write, aboard, ok := q.next(); ok {
		go q.work(write, aboard)
	} else {
		q.group.end()
	}
	return true
}

// Answer ends a job. The queue must be locked.
func (q *Queue[J, W]) Answer(j J) {
	w := j.waiter()
	w.answered = true
	w.done <- struct{}{}
}

// Ended records that a write has ended, and why it failed: with a [store.Error] that has an extent if others may be
// answered. The queue must be locked.
func (q *Queue[J, W]) Ended(trouble error) { q.trouble = trouble }

// Wait returns nil once the job is answered. If ctx ends before, the job leaves the queue or, if it is aboard a write,
// is marked as left. Wait then returns the context's error if the job has mostly waited for an answer. If it has mostly
// waited behind other jobs while writes were answered, the error has [store.ExtentCall]; if it waited because a write
// was refused, Wait returns the [store.Error] of that write. A job is waited for once.
func (q *Queue[J, W]) Wait(ctx context.Context, j J) error {
	w := j.waiter()
	select {
	case <-w.done:
		return nil
	default:
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	q.Lock()
	defer q.Unlock()
	if w.answered {
		<-w.done
		return nil
	}
	why := q.why(w, ctx.Err())
	if i := slices.Index(q.waiting, j); i >= 0 && !w.aboard {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	w.left = true
	return why
}

// why returns the error of a job that was not answered before its context ended.
func (q *Queue[J, W]) why(w *Waiter, ended error) error {
	now := time.Now()
	since := now // it has waited for an answer since then; by default, for the pause to end
	switch {
	case w.aboard:
		since = w.boarded
	case q.sent > 0:
		since = q.changed
	}
	failed := q.trouble != nil && store.ExtentOf(q.trouble) == store.ExtentUnknown // maybe for all
	if failed || since.Sub(w.joined) <= now.Sub(since) {
		return ended
	}
	late := store.Error{
		Extent: store.ExtentCall,
		Hint:   "this process makes more calls for the same keys, or to the store, than it answers",
	}
	if refused := (*store.Error)(nil); errors.As(q.trouble, &refused) {
		late = *refused
		ended = fmt.Errorf("%w: %w", ended, late.Err)
	}
	late.Op, late.Key, late.Err = "wait", "", ended
	return &late
}

// Busy returns the number of writes under way, and of jobs that wait. The queue must be locked.
func (q *Queue[J, W]) Busy() (writes, waiting int) { return q.writes, len(q.waiting) }

// Idle reports whether no job waits and no write is under way. The queue must be locked.
func (q *Queue[J, W]) Idle() bool { return q.writes == 0 && len(q.waiting) == 0 }

// next prepares a write, if one may begin and there is one to make.
func (q *Queue[J, W]) next() (write W, aboard []J, ok bool) {
	if len(q.waiting) == 0 || !q.free(q.writes, q.jobs) {
		return write, nil, false
	}
	if write, aboard, q.waiting, ok = q.writer.Prepare(q.waiting); ok {
		q.changed = time.Now()
		for _, j := range aboard {
			j.waiter().aboard, j.waiter().boarded = true, q.changed
		}
		q.sent++
		q.writes++
		q.jobs += len(aboard)
	}
	return write, aboard, ok
}

// work makes a write, then others until there is none left to make.
func (q *Queue[J, W]) work(write W, aboard []J) {
	defer q.group.end()
	for ok := true; ok; {
		n := len(aboard) // answered jobs belong to their callers
		again, pause := q.writer.Write(write, aboard)
		q.back(again, n)
		time.Sleep(pause)
		write, aboard, ok = q.ended()
	}
}

// back takes n jobs off a write, and lets some of them wait again.
func (q *Queue[J, W]) back(again []J, n int) {
	q.Lock()
	defer q.Unlock()
	q.jobs -= n
	q.sent--
	q.changed = time.Now()
	for _, j := range again {
		j.waiter().aboard = false
	}
	q.waiting = slices.Insert(q.waiting, 0, again...)
}

// ended counts a write as ended, and prepares the next.
func (q *Queue[J, W]) ended() (write W, aboard []J, ok bool) {
	q.Lock()
	defer q.Unlock()
	q.writes--
	return q.next()
}
