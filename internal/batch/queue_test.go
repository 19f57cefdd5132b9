package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type job struct {
	batch.Waiter
	name string
}

// writer makes writes of up to most jobs. A write takes a second.
type writer struct {
	queue *batch.Queue[*job, int]
	most  int
	wait  bool // prepare nothing
	back  bool // the next write fails, and its jobs wait again
	hangs bool // the second write takes a minute

	trouble error         // of each write
	pause   time.Duration // after each write

	writes []string // the names of the jobs, in the order in which the writes began
	begun  int
	gone   []string // jobs aboard that their callers left
	under  int      // writes under way, and the most at a time
	peak   int
}

func newWriter(group *batch.Group, free func(writes, jobs int) bool) *writer {
	w := &writer{most: 100}
	w.queue = batch.NewQueue(group, w, free)
	return w
}

// newGroup returns a group that is closed at the end of the test.
func newGroup(t *testing.T) *batch.Group {
	t.Helper()
	group := new(batch.Group)
	t.Cleanup(group.Close)
	return group
}

func (w *writer) Prepare(waiting []*job) (number int, aboard, later []*job, ok bool) {
	if waiting[0].name == "answered" {
		w.queue.Answer(waiting[0])
		waiting = waiting[1:]
	}
	n := min(w.most, len(waiting))
	if n == 0 || w.wait {
		return 0, nil, waiting, false
	}
	var names strings.Builder
	for _, j := range waiting[:n] {
		names.WriteString(j.name)
	}
	w.writes = append(w.writes, names.String())
	w.begun++
	return w.begun, slices.Clone(waiting[:n]), waiting[n:], true
}

func (w *writer) Write(number int, aboard []*job) (again []*job, pause time.Duration) {
	w.queue.Lock()
	w.under++
	w.peak = max(w.peak, w.under)
	w.queue.Unlock()
	time.Sleep(time.Second) // virtual time: in a bubble
	w.queue.Lock()
	if w.hangs && number == 2 {
		w.queue.Unlock()
		time.Sleep(time.Minute) // real time: none, as above
		w.queue.Lock()
	}
	defer w.queue.Unlock()
	w.under--
	w.queue.Ended(w.trouble)
	if number == 0 {
		panic("not what was prepared")
	}
	if w.back {
		w.back = false
		return aboard, w.pause
	}
	for _, j := range aboard {
		if j.Left() {
			w.gone = append(w.gone, j.name)
		}
		w.queue.Answer(j)
	}
	return nil, w.pause
}

func (w *writer) add(t *testing.T, names ...string) (js []*job) {
	t.Helper()
	w.queue.Lock()
	defer w.queue.Unlock()
	for _, n := range names {
		j := &job{name: n}
		if !w.queue.Add(j) {
			t.Errorf("%s was not queued", n)
		}
		js = append(js, j)
	}
	return js
}

func (w *writer) await(t *testing.T, js ...*job) {
	t.Helper()
	for _, j := range js {
		if err := w.queue.Wait(t.Context(), j); err != nil {
			t.Errorf("%s: %v", j.name, err)
		}
	}
}

func (w *writer) want(t *testing.T, writes ...string) {
	t.Helper()
	w.queue.Lock()
	defer w.queue.Unlock()
	if !slices.Equal(w.writes, writes) {
		t.Errorf("writes %q, want %q", w.writes, writes)
	}
}

// TestShare checks that jobs that arrive while a write is under way share the next, in the order of their arrival.
func TestShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(newGroup(t), nil)
		begun := time.Now()
		a := w.add(t, "a")
		synctest.Wait()
		rest := w.add(t, "b", "c", "d")
		w.most = 2
		rest = append(rest, w.add(t, "e")...)
		w.await(t, a...)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the first took %v", took)
		}
		w.await(t, rest...)
		w.want(t, "a", "bc", "de")
		if took := time.Since(begun); took != 3*time.Second || w.peak > 1 {
			t.Errorf("took %v, %d writes at a time", took, w.peak)
		}
	})
}

// TestSeveral checks that as many writes are under way as may be.
func TestSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(newGroup(t), func(writes, jobs int) bool { return writes < 2 || jobs < 3 })
		js := w.add(t, "a", "b", "c", "d", "e")
		synctest.Wait()
		w.queue.Lock()
		if writes, waiting := w.queue.Busy(); writes != 3 || waiting != 2 || w.queue.Idle() {
			t.Errorf("%d writes, %d wait", writes, waiting)
		}
		w.queue.Unlock()
		w.await(t, js...)
		w.want(t, "a", "b", "c", "de")
		synctest.Wait()
		w.queue.Lock()
		defer w.queue.Unlock()
		if !w.queue.Idle() || w.peak != 3 {
			t.Errorf("not idle, or %d writes at a time", w.peak)
		}
	})
}

// TestAnswered checks that a job that needs no write is answered without one.
func TestAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(newGroup(t), nil)
		begun := time.Now()
		w.await(t, w.add(t, "answered")...)
		if took := time.Since(begun); took != 0 || len(w.writes) > 0 {
			t.Errorf("took %v and %d writes", took, len(w.writes))
		}
	})
}

// TestQueued checks what error a job gets that gives up: one of its own if it spent most of its time behind others that
// were answered, that of the last write if it waited for the next try, and its context's if it waited for an answer.
func TestQueued(t *testing.T) {
	t.Parallel()
	throttled := &store.Error{Err: errors.New("throttled"), Extent: store.ExtentKey}
	silent := fmt.Errorf("no answer: %w", context.DeadlineExceeded)
	for _, tt := range []struct {
		name         string
		after, until time.Duration // when the job joins, and when it gives up; each write takes a second
		place        int           // jobs ahead of it, each with a write of its own
		trouble      error         // of those writes
		want         store.Extent
	}{
		{"aboard at once", 0, 900 * time.Millisecond, 0, nil, store.ExtentUnknown},
		{"behind one without an answer", 100 * time.Millisecond, 950 * time.Millisecond, 1, nil, store.ExtentUnknown},
		{"waits longer for its own answer", 600 * time.Millisecond, 1500 * time.Millisecond, 1, nil, store.ExtentUnknown},
		{"waits longer for its turn", 400 * time.Millisecond, 1500 * time.Millisecond, 1, nil, store.ExtentCall},
		{"behind many that are answered", 0, 3500 * time.Millisecond, 10, nil, store.ExtentCall},
		{"behind one that failed", 100 * time.Millisecond, 1050 * time.Millisecond, 1, silent, store.ExtentUnknown},
		{"behind many that failed", 0, 3500 * time.Millisecond, 10, silent, store.ExtentUnknown},
		{"behind many that were refused", 0, 3500 * time.Millisecond, 10, throttled, store.ExtentKey},
		{"was refused", 0, 9 * time.Second, 0, throttled, store.ExtentKey},
		{"was refused, but then not answered", 0, 20 * time.Second, 0, throttled, store.ExtentUnknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(newGroup(t), nil)
				w.most, w.trouble = 1, tt.trouble
				if tt.place == 0 { // the job's first write fails, and the next begins a while later
					w.back, w.pause = tt.trouble != nil, 8500*time.Millisecond
				}
				began := time.Now()
				for range tt.place {
					w.add(t, "x")
				}
				time.Sleep(tt.after)
				j := w.add(t, "j")[0]
				ctx, cancel := context.WithDeadline(t.Context(), began.Add(tt.until))
				defer cancel()
				time.Sleep(time.Nanosecond)
				w.queue.Lock()
				w.hangs = tt.until > 10*time.Second
				w.queue.Unlock()
				err := w.queue.Wait(ctx, j)
				if !errors.Is(err, context.DeadlineExceeded) || store.ExtentOf(err) != tt.want {
					t.Errorf("got %v, of %d", err, store.ExtentOf(err))
				}
				time.Sleep(time.Hour) // the writes end
			})
		})
	}
}

// TestLeave checks that a job that leaves while it waits is not written, that one that leaves a write under way is
// marked, and that an answer counts even if the caller's time is up.
func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(newGroup(t), nil)
		a := w.add(t, "a")[0]
		synctest.Wait()
		b := w.add(t, "b")[0]
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var group sync.WaitGroup
		for _, j := range []*job{a, b} {
			group.Go(func() {
				if err := w.queue.Wait(short, j); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", j.name, err)
				}
			})
		}
		group.Wait()
		w.await(t, w.add(t, "c")...)
		w.want(t, "a", "c")
		if !slices.Equal(w.gone, []string{"a"}) {
			t.Errorf("gone: %q", w.gone)
		}
		if err := w.queue.Wait(short, a); err != nil {
			t.Errorf("an answered job: %v", err)
		}
	})
}

// TestAgain checks that jobs that wait again go ahead of those that arrived meanwhile, after the pause, and may leave
// during it.
func TestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(newGroup(t), nil)
		w.most = 2
		begun := time.Now()
		w.add(t, "x")
		synctest.Wait()
		first := w.add(t, "a", "b")
		time.Sleep(3 * time.Second / 2) // the write of a and b is under way
		w.queue.Lock()
		w.back, w.pause = true, 10*time.Second
		w.queue.Unlock()
		rest := w.add(t, "c")
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.queue.Wait(short, first[0]); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.await(t, first[1], rest[0])
		if took := time.Since(begun); took != 13*time.Second || len(w.gone) > 0 {
			t.Errorf("took %v, %q left a write", took, w.gone)
		}
		w.want(t, "x", "ab", "bc")
	})
}

// TestClosed checks that Close waits until the jobs that wait have been answered, that no job is queued afterwards, and
// that a second Close does no harm.
func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var group batch.Group
		w := newWriter(&group, nil)
		js := w.add(t, "a", "b")
		begun, ran := time.Now(), false
		if !group.Go(func() { time.Sleep(time.Minute); ran = true }) {
			t.Error("not run")
		}
		group.Close()
		if took := time.Since(begun); took != time.Minute || !ran {
			t.Errorf("took %v", took)
		}
		w.await(t, js...)
		w.want(t, "a", "b")
		w.queue.Lock()
		defer w.queue.Unlock()
		if w.queue.Add(&job{name: "c"}) || group.Go(func() { t.Error("run after Close") }) || !w.queue.Idle() {
			t.Error("the group is not closed")
		}
		group.Close()
	})
}

// TestHammer checks that under load, no job is lost, no writes overlap, and no queue stands still while a job waits.
func TestHammer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all batch.Group
		w := newWriter(&all, nil)
		w.most = 7
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				for n := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i*n)%5)*time.Second)
					if err := w.queue.Wait(ctx, w.add(t, "x")[0]); err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		group.Wait()
		all.Close()
		w.queue.Lock()
		defer w.queue.Unlock()
		if !w.queue.Idle() || w.peak > 1 || len(w.writes) == 0 || len(w.gone) == 0 {
			t.Errorf("idle %t, %d at a time, %d writes, %d gone", w.queue.Idle(), w.peak, len(w.writes), len(w.gone))
		}
	})
}
