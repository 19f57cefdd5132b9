package cells_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
)

// A process that follows a cell, such as a command, explains and decides with the cell's share, also after that has
// moved, and once the process has been idle for longer than a share is valid.
func TestFollow(t *testing.T) {
	t.Parallel()
	bubble(t, available, func(w *world) {
		t := w.t
		w.join("a", "b")
		w.start("a")
		w.start("b")
		time.Sleep(5 * time.Second)
		w.want("", 1./2, 1./2)
		for want, st := range map[string]store.Store{"": w.registry, "a": w.stores["a"]} {
			if got, err := cells.Owner(t.Context(), st); got != want || err != nil {
				t.Errorf("the store belongs to %q %v, want %q", got, err, want)
			}
		}
		f, err := cells.Follow(t.Context(), &link{Catalog: w.stores["a"]}, "a")
		if err != nil {
			t.Fatal(err)
		}
		lim, err := weir.New(weir.Config{Store: w.stores["a"]})
		if err != nil {
			t.Fatal(err)
		}
		parts.Of(lim).Policies.Use(f, nil)
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rpm", 10)); err != nil {
			t.Fatal(err)
		}
		if x, err := lim.Explain(t.Context(), weir.Request{Entity: "e", Resource: "r"}); err != nil || x.Chain[0].Limits[0].Status.Available != 5 {
			t.Errorf("explained: %+v %v", x, err)
		}
		take := func(n int64) error {
			_, err := lim.Acquire(t.Context(), weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rpm": n}})
			return err
		}
		if err := take(5); err != nil {
			t.Error(err)
		}
		if err := take(1); !errors.Is(err, weir.ErrExceeded) {
			t.Errorf("more than the share: %v", err)
		}
		if err := w.reg.Drain(t.Context(), "b", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.want("", 1, 0)
		if err := take(5); err != nil {
			t.Errorf("with the whole: %v", err)
		}
	})
}

// Decisions that find out at once that there is a newer share read it once, and wait no longer than they may.
func TestStaleTogether(t *testing.T) {
	t.Parallel()
	bubble(t, available, func(w *world) {
		t := w.t
		w.join("a", "b")
		w.start("a")
		w.start("b")
		time.Sleep(5 * time.Second)
		st := &slow{Catalog: w.stores["a"]}
		f, err := cells.Follow(t.Context(), st, "a")
		if err != nil {
			t.Fatal(err)
		}
		before := f.Share("").Epoch
		together := func(within time.Duration) (took time.Duration) {
			st.reads.Store(0)
			began := time.Now()
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					f.Stale(ctx, before)
				})
			}
			all.Wait()
			return time.Since(began)
		}
		st.takes = 10 * time.Millisecond
		if took := together(time.Second); took > 2*st.takes || st.reads.Load() > 2 { // there is none yet
			t.Errorf("%d reads in %s", st.reads.Load(), took)
		}
		if err := w.reg.Drain(t.Context(), "b", false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		st.takes = time.Hour
		gone, stop := context.WithCancel(t.Context())
		stop()
		var reading sync.WaitGroup
		reading.Go(func() { f.Stale(t.Context(), before) })
		time.Sleep(time.Second)
		began := time.Now()
		if f.Stale(gone, before); time.Since(began) > 0 {
			t.Errorf("waited %s for the read of another decision", time.Since(began))
		}
		reading.Wait()
		if f.Share("").Epoch == before {
			t.Error("the newer share was not read")
		}
	})
}
