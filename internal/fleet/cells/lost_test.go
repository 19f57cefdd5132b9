package cells_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// copied returns a store with the current records of a cell's store.
func (w *world) copied(cell string) store.Store {
	w.t.Helper()
	st := memory.New(nil)
	key := store.Key{Namespace: "cells", Kind: "cell-shares"}
	got, err := w.stores[cell].Get(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	for version := range got.Records[0].Version {
		rec := store.Record{Key: key, Version: version, Value: got.Records[0].Value}
		if err := st.Commit(w.t.Context(), store.Write{Record: rec}); err != nil {
			w.t.Fatal(err)
		}
	}
	return st
}

// A cell's store that loses data, as Redis does after a restart without persistence or a failover to a replica, costs the
// cell neither its share nor what it had confirmed.
func TestStoreLost(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		t.Run(map[bool]string{false: "all", true: "the last share"}[kept], func(t *testing.T) {
			t.Parallel()
			bubble(t, strict, func(w *world) {
				w.join("a", "b", "c")
				w.start("a")
				w.start("a")
				time.Sleep(strictly)
				w.want("", 1)
				old := store.Store(memory.New(nil))
				if kept {
					old = w.copied("a")
				}
				w.start("b")
				time.Sleep(strictly)
				w.want("", 1./2, 1./2)
				was := w.nodes[0].agent.Share("").Epoch
				w.peakAtMost(1)
				_ = w.stores["a"].Close()
				w.stores["a"] = old
				for _, n := range w.nodes[:2] {
					n.local.replace(old)
				}
				time.Sleep(6 * time.Second)
				w.peakAtMost(1)
				for _, n := range w.nodes[:2] {
					s := n.agent.Share("")
					if s.Num != w.nodes[2].agent.Share("").Num || !time.Now().Before(s.Until) {
						t.Errorf("it goes by %+v", s)
					}
					if s.Epoch <= was {
						t.Errorf("epoch %d after %d: buckets that are still there would refuse it", s.Epoch, was)
					}
				}
				time.Sleep(strictly)
				w.want("", 1./2, 1./2)
				w.start("c")
				time.Sleep(strictly)
				w.want("", 1./3, 1./3, 1./3)
				w.peakAtMost(1)
			})
		})
	}
}

// A registry that returns with older grants than cells have confirmed, as from a backup, grants no cell a share that
// another may be using, and cells follow the grants it issues from then on.
func TestRegistryRestored(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b", "c")
		w.start("a")
		time.Sleep(strictly)
		key := store.Key{Namespace: "cells", Kind: "cell-grants"}
		grants := func() store.Record {
			got, err := w.registry.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return got.Records[0]
		}
		old := grants()
		b := w.start("b")
		time.Sleep(time.Minute)
		w.want("", 1./2, 1./2)
		b.registry.setCut(true) // it keeps its share
		old.Version = grants().Version
		if err := w.registry.Commit(t.Context(), store.Write{Record: old}); err != nil {
			t.Fatal(err)
		}
		w.start("c")
		time.Sleep(2 * strictly)
		w.peakAtMost(1)
		b.registry.setCut(false)
		time.Sleep(3 * strictly)
		w.peakAtMost(1)
		w.want("", 1./3, 1./3, 1./3)
	})
}

// A registry that lost everything takes the cells for removed: they admit nothing, until they join again.
func TestRegistryEmptied(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b")
		w.start("a")
		w.start("b")
		time.Sleep(strictly)
		w.want("", 1./2, 1./2)
		empty := memory.New(nil)
		defer empty.Close()
		for _, n := range w.nodes {
			n.registry.replace(empty)
		}
		time.Sleep(strictly)
		w.want("", 0, 0)
		w.reg = cells.Registry{Catalog: empty}
		w.join("a", "b")
		time.Sleep(2 * strictly)
		w.want("", 1./2, 1./2)
		w.peakAtMost(1)
	})
}
