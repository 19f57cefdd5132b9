package cells_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store/memory"
)

// errorLog counts log messages at level error.
type errorLog struct {
	slog.Handler
	mu sync.Mutex
	n  int
}

func newErrorLog() *errorLog { return &errorLog{Handler: slog.DiscardHandler} }

func (l *errorLog) Enabled(context.Context, slog.Level) bool { return true }

func (l *errorLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Level >= slog.LevelError {
		l.n++
	}
	return nil
}

func (l *errorLog) errors() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

// install starts a process on its own store. The world calls it by the name as, so that its share is added to that of others.
func (w *world) install(cell, as string, st *link) (*node, *errorLog) {
	w.t.Helper()
	log := newErrorLog()
	n := &node{cell: as, registry: &link{Catalog: w.registry, gate: make(chan struct{})}, local: st}
	var err error
	if n.agent, err = cells.New(cells.Config{Registry: n.registry, Local: n.local, Cell: cell, Log: slog.New(log)}); err != nil {
		w.t.Fatal(err)
	}
	if err := n.agent.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	synctestMu.Lock()
	defer synctestMu.Unlock()
	w.nodes = append(w.nodes, n)
	return n, log
}

func newStore(t *testing.T) *link {
	t.Helper()
	st := memory.New(nil)
	t.Cleanup(func() { _ = st.Close() })
	return &link{Catalog: st}
}

// others reads from the registry how many processes of other installations use a cell's name.
func (w *world) others(cell string) int {
	w.t.Helper()
	v, err := w.reg.Inspect(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, c := range v.Cells {
		if c.Name == cell {
			return c.Others
		}
	}
	return -1
}

// A second installation under a cell's name has no share, and both report the conflict. The first one stays, whichever
// controller leads, and when it leaves permanently the other takes its place.
func TestNameTwice(t *testing.T) {
	t.Parallel()
	for _, mode := range []func(*cells.Settings){strict, available} {
		bubble(t, mode, func(w *world) {
			w.join("a", "b")
			store := newStore(w.t)
			first, firstLog := w.install("a", "a", store)
			w.start("b")
			time.Sleep(strictly)
			w.want("", 1./2, 1./2)
			w.peak()
			second, secondLog := w.install("a", "a, again", newStore(w.t))
			time.Sleep(strictly)
			w.want("", 1./2, 1./2, 0)
			w.peakAtMost(1)
			if n := w.others("a"); n != 1 {
				w.t.Errorf("%d processes of other installations", n)
			}
			if firstLog.errors() != 1 || secondLog.errors() != 1 {
				w.t.Errorf("%d and %d errors are logged", firstLog.errors(), secondLog.errors())
			}
			if s := second.agent.Status().View; s.Cells[0].Others != 1 {
				w.t.Errorf("the second does not know: %+v", s.Cells[0])
			}
			_ = first.agent.Close()
			time.Sleep(2 * strictly)
			w.want("", 1./2, 1./2, 1./2) // the first is closed, and uses no share
			if n := w.others("a"); n != 0 {
				w.t.Errorf("%d processes of other installations, of which none runs", n)
			}
			synctestMu.Lock()
			w.nodes = w.nodes[1:]
			synctestMu.Unlock()
			w.peak()
			back, _ := w.install("a", "a", store) // and finds the other installation in its place
			time.Sleep(strictly)
			w.want("", 1./2, 1./2, 0)
			w.peakAtMost(1)
			_ = back
		})
	}
}

// If two installations start at once under one name, one of them becomes the cell.
func TestNameTwiceAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a")
		w.install("a", "one", newStore(w.t))
		w.install("a", "two", newStore(w.t))
		time.Sleep(strictly)
		if s := w.shares(""); s[0]+s[1] != 1 || s[0]*s[1] != 0 {
			w.t.Errorf("shares are %v", s)
		}
		w.peakAtMost(1)
	})
}

// A cell that restarts with an empty store is the same cell again after one expiry period. A cell whose store loses
// everything while its processes run never stops being that cell.
func TestNameKept(t *testing.T) {
	t.Parallel()
	bubble(t, strict, func(w *world) {
		w.join("a", "b")
		a, log := w.install("a", "a", newStore(w.t))
		w.install("a", "a", a.local)
		w.start("b")
		time.Sleep(strictly)
		w.want("", 1./2, 1./2)
		empty := memory.New(nil)
		defer empty.Close()
		a.local.replace(empty)
		w.install("a", "a", a.local) // before the others have noticed
		for range 40 {
			time.Sleep(time.Second)
			w.want("", 1./2, 1./2)
		}
		if n := w.others("a"); n != 0 || log.errors() > 0 {
			w.t.Errorf("%d processes are taken for another installation's", n)
		}
		for _, n := range w.nodes {
			if n.cell == "a" {
				_ = n.agent.Close()
			}
		}
		synctestMu.Lock()
		w.nodes = w.nodes[2:3]
		synctestMu.Unlock()
		w.install("a", "a", newStore(w.t))
		time.Sleep(2 * strictly)
		w.want("", 1./2, 1./2)
	})
}
