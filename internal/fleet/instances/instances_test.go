package instances_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlimits/weir/internal/fleet/instances"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

// flaky is a catalog that can be made to fail.
type flaky struct {
	store.Catalog

	down atomic.Bool
	lose atomic.Int32 // whether answers to writes are lost
}

func (f *flaky) Commit(ctx context.Context, ws ...store.Write) error {
	if f.down.Load() {
		return errDown
	}
	err := f.Catalog.Commit(ctx, ws...)
	if f.lose.Add(-1) >= 0 {
		return errDown
	}
	return err
}

func (f *flaky) List(ctx context.Context, q store.Query) (store.Page, error) {
	if f.down.Load() {
		return store.Page{}, errDown
	}
	return f.Catalog.List(ctx, q)
}

// fleet starts counters. Calling stop ends one as its process would end it.
type fleet struct {
	t   *testing.T
	cat *flaky
	all sync.WaitGroup
}

func (f *fleet) start() (c *instances.Counter, stop func()) {
	c = instances.New(f.cat, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(f.t.Context())
	f.all.Go(func() { _ = c.Run(ctx) })
	return c, cancel
}

func bubble(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, cat: &flaky{Catalog: memory.New(nil)}}
		test(t, f)
	})
}

func wants(t *testing.T, c *instances.Counter, want int, when string) {
	t.Helper()
	if got := c.Count(); got != want {
		t.Errorf("%s: counts %d, want %d", when, got, want)
	}
}

// The count rises within two beats, and falls three minutes after there were as many.
func TestCount(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fleet) {
		a, stopA := f.start()
		wants(t, a, 1, "alone")
		b, stopB := f.start()
		c, stopC := f.start()
		time.Sleep(12 * time.Second)
		for _, x := range []*instances.Counter{a, b, c} {
			wants(t, x, 3, "of three")
		}
		stopC()
		time.Sleep(2 * time.Minute)
		wants(t, a, 3, "two minutes later")
		time.Sleep(70 * time.Second)
		wants(t, a, 2, "three minutes later")
		stopA()
		stopB()
		f.all.Wait()
	})
}

// A process that starts without the store counts as many as an earlier one has, until three minutes after an answer.
func TestFrom(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fleet) {
		f.cat.down.Store(true)
		c := instances.New(f.cat, slog.New(slog.DiscardHandler))
		var changes []int
		c.Changed = func(n int) { changes = append(changes, n) }
		c.From(0)
		wants(t, c, 1, "nothing known")
		c.From(5)
		ctx, stop := context.WithCancel(f.t.Context())
		f.all.Go(func() { _ = c.Run(ctx) })
		time.Sleep(time.Hour)
		wants(t, c, 5, "without the store")
		f.cat.down.Store(false)
		time.Sleep(170 * time.Second)
		wants(t, c, 5, "before three minutes of answers")
		time.Sleep(20 * time.Second)
		wants(t, c, 1, "after them")
		stop()
		f.all.Wait()
		if len(changes) != 1 || changes[0] != 1 {
			t.Errorf("changes %v", changes)
		}
	})
}

// A crashed process leaves its record, which ages. Each process measures that age by its own clock.
func TestCrash(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fleet) {
		a, stopA := f.start()
		key := store.Key{Namespace: "weir.instances", Kind: "member", ID: "worker/crashed"}
		if err := f.cat.Commit(t.Context(), store.Write{Record: store.Record{Key: key, Value: []byte(`{"seq":7}`)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(12 * time.Second)
		wants(t, a, 2, "as long as it is new")
		time.Sleep(2 * time.Minute)
		wants(t, a, 2, "when it has gone")
		time.Sleep(2 * time.Minute)
		wants(t, a, 1, "long after")
		stopA()
		f.all.Wait()
	})
}

// While the store does not answer the count stands. Afterwards, a process that could not write is not taken for gone.
func TestOutage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fleet) {
		var stops []func()
		var all []*instances.Counter
		for range 5 {
			c, stop := f.start()
			all, stops = append(all, c), append(stops, stop)
		}
		time.Sleep(time.Minute)
		f.cat.down.Store(true)
		for range 60 {
			time.Sleep(30 * time.Second)
			wants(t, all[0], 5, "without the store")
		}
		f.cat.down.Store(false)
		for range 60 {
			time.Sleep(time.Second)
			wants(t, all[0], 5, "when it answers again")
		}
		for _, stop := range stops {
			stop()
		}
		f.all.Wait()
	})
}

// A write whose answer is lost does not stop the beats.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, f *fleet) {
		f.cat.lose.Store(1)
		a, stopA := f.start()
		b, stopB := f.start()
		time.Sleep(20 * time.Second)
		wants(t, a, 2, "a")
		wants(t, b, 2, "b")
		stopA()
		stopB()
		f.all.Wait()
		page, err := f.cat.List(context.WithoutCancel(t.Context()), store.Query{Namespace: "weir.instances", Kind: "member"})
		if err != nil || len(page.Records) != 1 || page.Records[0].Key.ID != "grants" {
			t.Errorf("%+v are left, %v", page.Records, err)
		}
	})
}
