package instances_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/fleet/instances"
	"github.com/weirlimits/weir/store"
)

// list is a catalog that has many records and counts the calls to it.
type list struct {
	store.Catalog

	mu      sync.Mutex
	all     []store.Record // by ID
	commits int
	lists   int
	listed  int // records
	mute    atomic.Bool
}

func (l *list) at(id string) (int, bool) {
	return slices.BinarySearchFunc(l.all, id, func(r store.Record, id string) int { return cmp.Compare(r.Key.ID, id) })
}

func (l *list) Get(_ context.Context, keys ...store.Key) (got store.Got, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		r := store.Record{Key: k}
		if i, ok := l.at(k.ID); ok && time.Now().Before(l.all[i].Expires) {
			r = l.all[i]
		}
		got.Records = append(got.Records, r)
	}
	return got, nil
}

func (l *list) Commit(_ context.Context, ws ...store.Write) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits++
	if l.mute.Load() {
		return errDown
	}
	r := ws[0].Record
	i, ok := l.at(r.Key.ID)
	have := uint64(0)
	if ok && time.Now().Before(l.all[i].Expires) {
		have = l.all[i].Version
	}
	switch {
	case have != r.Version:
		return &store.ConflictError{Key: r.Key, Have: have, Want: r.Version}
	case ws[0].Delete:
		l.all = slices.Delete(l.all, i, i+1)
		return nil
	}
	r.Version++
	if ok {
		l.all[i] = r
	} else {
		l.all = slices.Insert(l.all, i, r)
	}
	return nil
}

func (l *list) List(_ context.Context, q store.Query) (page store.Page, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	i, _ := l.at(q.After)
	for ; i < len(l.all); i++ {
		if r := l.all[i]; r.Key.ID != q.After && time.Now().Before(r.Expires) {
			if len(page.Records) == q.Max {
				page.Next = page.Records[q.Max-1].Key.ID
				break
			}
			page.Records = append(page.Records, r)
		}
	}
	l.listed += len(page.Records)
	return page, nil
}

// asked returns the calls per second since the previous check.
func (l *list) asked(since time.Duration) (commits, lists, listed float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := since.Seconds()
	commits, lists, listed = float64(l.commits)/s, float64(l.lists)/s, float64(l.listed)/s
	l.commits, l.lists, l.listed = 0, 0, 0
	return commits, lists, listed
}

// crowd is a fleet in which each process counts.
type crowd struct {
	t    *testing.T
	list *list
	wg   sync.WaitGroup
	all  []*instances.Counter
	stop []context.CancelFunc
}

// grow adds processes until there are n, evenly over a duration.
func (c *crowd) grow(n int, within time.Duration) {
	each := within / time.Duration(n-len(c.all))
	for len(c.all) < n {
		x := instances.New(c.list, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(c.t.Context())
		c.wg.Go(func() { _ = x.Run(ctx) })
		c.all, c.stop = append(c.all, x), append(c.stop, cancel)
		time.Sleep(each) // real time: none; this is a bubble
	}
}

// shrink stops the last processes, either cleanly or as in a crash.
func (c *crowd) shrink(n int, crash bool) {
	c.list.mute.Store(crash)
	for i := n; i < len(c.stop); i++ {
		c.stop[i]()
	}
	synctest.Wait()
	c.list.mute.Store(false)
	c.all, c.stop = c.all[:n], c.stop[:n]
}

// count fails unless all counts lie between least and most times the true number, and returns the first process's count.
func (c *crowd) count(least, most float64, when string) int {
	c.t.Helper()
	low, high := c.all[0].Count(), 0
	for _, x := range c.all {
		low, high = min(low, x.Count()), max(high, x.Count())
	}
	if n := float64(len(c.all)); float64(low) < least*n || float64(high) > most*n {
		c.t.Errorf("%s: %d count from %d to %d", when, len(c.all), low, high)
	}
	return c.all[0].Count()
}

func gather(t *testing.T, f func(c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, list: &list{}}
		f(c)
		c.shrink(0, true)
		c.wg.Wait()
	})
}

// The more processes there are, the less each asks: five thousand ask no more often than five hundred, and count well.
func TestThousands(t *testing.T) {
	t.Parallel()
	gather(t, func(c *crowd) {
		c.grow(50, time.Second)
		time.Sleep(20 * time.Second) // real time: none; this is a bubble
		c.count(1, 1, "few")
		c.list.asked(time.Second)
		time.Sleep(10 * time.Second) // real time: none; this is a bubble
		if commits, lists, _ := c.list.asked(10 * time.Second); commits < 8 || commits > 12 || lists < 8 || lists > 12 {
			t.Errorf("few: %g commits, %g lists a second", commits, lists)
		}

		many := 5000
		if race {
			many = 800 // with the race detector it takes ten times as long
		}
		c.grow(many, 30*time.Second)
		c.count(0.25, 1.6, "while they come") // including the process that came first
		time.Sleep(time.Minute)               // real time: none; this is a bubble
		c.count(0.95, 1.5, "many")
		c.list.asked(time.Second)
		time.Sleep(time.Minute) // real time: none; this is a bubble
		commits, lists, listed := c.list.asked(time.Minute)
		t.Logf("of %d processes one counts %d; a second they write %.3g times, and list %.3g times, %.4g records", len(c.all), c.all[0].Count(), commits, lists, listed)
		if commits > 30 || lists > 110 || listed > 110*2*instances.Least {
			t.Error("too often")
		}
	})
}

// A process that has gone is counted for a while, whether or not it signed off, and then no more.
func TestThousandsGo(t *testing.T) {
	t.Parallel()
	gather(t, func(c *crowd) {
		c.grow(400, 10*time.Second)
		time.Sleep(30 * time.Second) // real time: none; this is a bubble
		before := c.all[0].Count()
		c.shrink(180, true)
		time.Sleep(2 * time.Minute) // real time: none; this is a bubble
		if n := c.count(2, 4, "after a crash, soon"); n < before {
			t.Errorf("it has fallen from %d to %d at once", before, n)
		}
		time.Sleep(6 * time.Minute) // real time: none; this is a bubble
		c.count(0.95, 1.6, "after a crash, late")
		c.shrink(20, false)
		time.Sleep(7 * time.Minute) // real time: none; this is a bubble
		c.count(1, 1, "few again")
	})
}

// While writes fail or nothing is answered, the count stands, also for processes that only read.
func TestThousandsMute(t *testing.T) {
	t.Parallel()
	gather(t, func(c *crowd) {
		c.grow(250, 10*time.Second)
		time.Sleep(30 * time.Second) // real time: none; this is a bubble
		before := c.count(0.95, 1.5, "before")
		c.list.mute.Store(true)
		time.Sleep(4 * time.Minute) // real time: none; this is a bubble
		if n := c.count(0.95, 1.5, "mute"); n < before*9/10 {
			t.Errorf("from %d to %d", before, n)
		}
		c.list.mute.Store(false)
		time.Sleep(5 * time.Minute) // real time: none; this is a bubble
		c.count(0.95, 1.5, "after")
	})
}

// How often the estimate is too low, and by how much it is too high, over many fleets.
func TestEstimate(t *testing.T) {
	t.Parallel()
	const fleets, n = 200, 1000
	low, sum := 0, 0.0
	dice := rand.New(rand.NewPCG(1, 1))
	for range fleets {
		synctest.Test(t, func(t *testing.T) {
			l := &list{}
			for range n - 1 {
				l.all = append(l.all, store.Record{Key: store.Key{ID: fmt.Sprintf("%016x", dice.Uint64())}, Version: 1, Expires: time.Now().Add(time.Hour)})
			}
			slices.SortFunc(l.all, func(a, b store.Record) int { return cmp.Compare(a.Key.ID, b.Key.ID) })
			x := instances.New(l, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = x.Run(ctx) }()
			synctest.Wait()
			got := float64(x.Count()) / n
			if sum += got; got < 1 {
				low++
			}
			if got < 0.85 || got > 1.7 {
				t.Errorf("counts %s times as many", strconv.FormatFloat(got, 'f', 2, 64))
			}
			cancel()
			synctest.Wait()
		})
	}
	if mean := sum / fleets; low > fleets/15 || mean < 1.1 || mean > 1.25 {
		t.Errorf("%d of %d are too low, on average %.3f of what it is", low, fleets, mean)
	}
}
