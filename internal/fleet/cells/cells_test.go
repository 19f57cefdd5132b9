package cells_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
)

func TestStrictJoins(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b", "c", "d", "e", "f")
		w.start("a")
		time.Sleep(3 * time.Second)
		w.want("", 1)
		w.start("b")
		w.start("b")
		w.want("", 1, 0) // until a has confirmed
		w.admits(true, false, false)
		time.Sleep(strictly)
		w.want("", 1./2, 1./2)
		w.admits(true, true, true)
		w.start("c")
		time.Sleep(strictly)
		w.want("", 1./3, 1./3, 1./3)
		for _, name := range []string{"d", "e", "f"} {
			w.start(name)
		}
		time.Sleep(strictly)
		w.want("", 1./6, 1./6, 1./6, 1./6, 1./6, 1./6)
		w.peakAtMost(1)
		if err := w.reg.Drain(w.t.Context(), "a", false); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(strictly)
		w.want("", 0, 1./5, 1./5, 1./5, 1./5, 1./5)
		w.admits(false, true, true, true, true, true, true)
		w.peakAtMost(1)
	})
}

// B.7: the cost of a join while other cells still use their old shares, and how soon it ends.
func TestAvailableJoins(t *testing.T) {
	t.Parallel()
	bubble(t, available, func(w *world) {
		w.alone = true
		w.join("a", "b", "c", "d", "e", "f")
		w.start("a")
		time.Sleep(3 * time.Second)
		w.want("", 1)
		for _, step := range []struct {
			joins []string
			most  float64
		}{{[]string{"b"}, 1.5}, {[]string{"c"}, 4. / 3}, {[]string{"d", "e", "f"}, 1.5}} {
			w.peak()
			for _, name := range step.joins {
				w.start(name)
			}
			time.Sleep(3 * time.Second)
			equal := make([]float64, len(w.nodes))
			for i := range equal {
				equal[i] = 1 / float64(len(equal))
			}
			w.want("", equal...)
			w.peakAtMost(step.most)
			time.Sleep(time.Second)
			w.peak()
			time.Sleep(time.Second)
			w.peakAtMost(1)
		}
	})
}

func TestCrash(t *testing.T) {
	t.Parallel()
	t.Run("available", func(t *testing.T) {
		t.Parallel()
		bubble(t, available, func(w *world) {
			w.join("a", "b")
			w.start("a")
			b := w.start("b")
			time.Sleep(5 * time.Second)
			w.want("", 1./2, 1./2)
			b.agent.Close()
			time.Sleep(8 * time.Second)
			w.want("", 1./2, 1./2) // a restart is not a crash
			time.Sleep(6 * time.Second)
			w.want("", 1, 1./2)
			w.start("b") // returns
			time.Sleep(4 * time.Second)
			w.want("", 1./2, 1./2)
		})
	})
	t.Run("strict", func(t *testing.T) {
		t.Parallel()
		bubble(t, strict, func(w *world) {
			w.join("a", "b")
			w.start("a")
			b := w.start("b")
			time.Sleep(strictly)
			w.want("", 1./2, 1./2)
			b.agent.Close()
			time.Sleep(10 * time.Minute)
			w.want("", 1./2, 1./2) // it may only be cut off
			if err := w.reg.Remove(w.t.Context(), "b", false); !errors.Is(err, cells.ErrHolds) {
				w.t.Errorf("a cell that holds a share was removed: %v", err)
			}
			if err := w.reg.Remove(w.t.Context(), "b", true); err != nil {
				w.t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			w.want("", 1, 1./2)
		})
	})
}

// A cell that is cut off keeps its share, also over a restart, and in strict mode the others wait for it.
func TestCutOff(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b", "c")
		a := w.start("a")
		b := w.start("b")
		time.Sleep(strictly)
		b.registry.setCut(true)
		time.Sleep(10 * time.Minute)
		w.want("", 1./2, 1./2)
		if s := b.agent.Status(); s.Err == nil || time.Since(s.Contact) < 9*time.Minute {
			w.t.Errorf("a cell that is cut off says %+v", s)
		}
		b.agent.Close()
		again := &link{Catalog: w.registry, cut: true}
		restarted, err := cells.New(cells.Config{Registry: again, Local: b.local, Cell: "b"})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := restarted.Start(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		synctestMu.Lock()
		b.agent, b.registry = restarted, again
		synctestMu.Unlock()
		w.want("", 1./2, 1./2)
		w.start("c") // gets what a gives up
		time.Sleep(strictly)
		w.want("", 1./4, 1./2, 1./4)
		w.peakAtMost(1)
		again.setCut(false)
		time.Sleep(strictly)
		w.want("", 1./3, 1./3, 1./3)
		w.peakAtMost(1)
		_ = a
	})
}

// A controller that is paused between reading and writing, and resumes when another one leads, changes nothing.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b", "c")
		a := w.start("a")
		b := w.start("b")
		time.Sleep(strictly)
		w.want("", 1./2, 1./2)
		if !a.agent.Status().Leads || b.agent.Status().Leads {
			w.t.Fatal("the first leads")
		}
		a.registry.mu.Lock()
		a.registry.pause = func(ws []store.Write) bool { return ws[0].Record.Key.Kind == "cell-grants" }
		a.registry.mu.Unlock()
		time.Sleep(8 * time.Second) // both believe that they lead
		if !a.agent.Status().Leads || !b.agent.Status().Leads {
			w.t.Fatal("there are not two")
		}
		before, err := w.reg.Inspect(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		a.registry.mu.Lock()
		a.registry.pause = nil
		a.registry.mu.Unlock()
		close(a.registry.gate) // the stale write, and everything before the other controller's next beat
		time.Sleep(10 * time.Millisecond)
		after, err := w.reg.Inspect(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		if after.Version.Compare(before.Version) < 0 || after.Leader != before.Leader || after.Version.Epoch != before.Version.Epoch {
			w.t.Errorf("the stale controller wrote: %v of %s, before %v of %s", after.Version, after.Leader, before.Version, before.Leader)
		}
		time.Sleep(3 * time.Second)
		if a.agent.Status().Leads {
			w.t.Error("the stale controller leads")
		}
		w.start("c")
		time.Sleep(2 * strictly)
		w.want("", 1./3, 1./3, 1./3)
		w.peakAtMost(1)
	})
}

// After a takeover nothing changes for one expiry period: the new leader has not yet seen which cells are alive.
func TestLearning(t *testing.T) {
	t.Parallel()
	bubble(t, available, func(w *world) {
		w.join("a", "b", "c")
		a := w.start("a")
		w.start("b")
		time.Sleep(5 * time.Second)
		a.registry.setCut(true)
		time.Sleep(5 * time.Second) // b leads
		w.start("c")
		time.Sleep(7 * time.Second)
		w.want("", 1./2, 1./2, 0)
		time.Sleep(6 * time.Second)
		w.want("", 1./2, 1./2, 1./2) // a is missing, and keeps its share
		w.peakAtMost(1.5)
	})
}

// Whatever is cut off, lost, stale or restarted: in strict mode, the shares in use never exceed the whole.
func TestStrictHarm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			bubble(t, func(s *cells.Settings) { s.Weights = cells.Offered }, func(w *world) {
				r := rand.New(rand.NewPCG(seed, 8))
				names := []string{"a", "b", "c", "d"}
				w.join(names...)
				for _, name := range names {
					for range 2 {
						n := w.start(name)
						n.registry.mu.Lock()
						n.registry.lossy = rand.New(rand.NewPCG(seed, r.Uint64()))
						n.registry.mu.Unlock()
					}
				}
				for range 60 {
					n := w.nodes[r.IntN(len(w.nodes))]
					switch r.IntN(6) {
					case 0, 1:
						n.registry.setCut(true)
					case 2, 3:
						n.registry.setCut(false)
					case 4:
						n.local.setCut(r.IntN(2) == 0)
					case 5:
						if err := w.reg.Drain(w.t.Context(), n.cell, r.IntN(2) == 0); err != nil {
							w.t.Fatal(err)
						}
					}
					time.Sleep(time.Duration(r.IntN(6000)) * time.Millisecond)
					w.peakAtMost(1)
				}
				for _, n := range w.nodes {
					n.registry.mu.Lock()
					n.registry.cut, n.registry.lossy = false, nil
					n.registry.mu.Unlock()
					n.local.setCut(false)
				}
				for _, name := range names {
					if err := w.reg.Drain(w.t.Context(), name, true); err != nil {
						w.t.Fatal(err)
					}
				}
				time.Sleep(3 * strictly)
				w.want("", 1./4, 1./4, 1./4, 1./4)
				w.peakAtMost(1)
			})
		})
	}
}

func TestNotACell(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a")
		w.start("a")
		a, err := cells.New(cells.Config{Registry: w.registry, Local: w.registry, Cell: "typo"})
		if err != nil {
			w.t.Fatal(err)
		}
		if err := a.Start(w.t.Context()); !errors.Is(err, cells.ErrNotFound) {
			w.t.Errorf("a name that is no cell: %v", err)
		}
		// A store belongs to one cell.
		time.Sleep(3 * time.Second)
		w.join("b")
		if a, err = cells.New(cells.Config{Registry: w.registry, Local: w.stores["a"], Cell: "b"}); err != nil {
			w.t.Fatal(err)
		}
		if err := a.Start(w.t.Context()); err == nil {
			w.t.Error("a cell started on another's store")
		}
		// A removed cell has no share any more.
		if err := w.reg.Remove(w.t.Context(), "a", true); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		w.want("", 0)
	})
}

// A process that cannot read its cell's current share counts until it can no longer use the old one.
func TestConfirmsForAll(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b")
		w.start("a")
		unreadable := w.start("a")
		time.Sleep(10 * time.Second)
		if n := unreadable.agent.Share("").Num; n != cells.Whole {
			w.t.Fatalf("the second process goes by %d", n)
		}
		unreadable.local.setCut(true)
		w.start("b")
		time.Sleep(strictly)
		w.want("", 1./2, 1./2)
		w.peakAtMost(1)
	})
}
