package cells_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

var errCut = errors.New("cut off")

// link is an agent's connection to a catalog.
type link struct {
	store.Catalog
	mu    sync.Mutex // guards Catalog too
	cut   bool
	lossy *rand.Rand                 // loses answers, including those of successful writes, and gives old ones
	last  map[string]any             // the last answer to each read
	pause func(w []store.Write) bool // writes for which it returns true wait until gate opens
	gate  chan struct{}
}

func (l *link) fails() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.lossy != nil && l.lossy.IntN(10) == 0 {
		return errCut
	}
	return nil
}

func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
}

func (l *link) replace(c store.Catalog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Catalog = c
}

func (l *link) catalog() store.Catalog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Catalog
}

// recall answers a read, of a lossy link sometimes as it did last time.
func recall[T any](l *link, of string, read func(store.Catalog) (T, error)) (none T, err error) {
	if err := l.fails(); err != nil {
		return none, err
	}
	got, err := read(l.catalog())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lossy == nil || err != nil {
		return got, err
	}
	if old, ok := l.last[of].(T); ok && l.lossy.IntN(10) == 0 {
		return old, nil
	}
	if l.last == nil {
		l.last = make(map[string]any)
	}
	l.last[of] = got
	return got, nil
}

func (l *link) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	return recall(l, fmt.Sprint(keys), func(c store.Catalog) (store.Got, error) { return c.Get(ctx, keys...) })
}

func (l *link) List(ctx context.Context, q store.Query) (store.Page, error) {
	return recall(l, fmt.Sprint(q), func(c store.Catalog) (store.Page, error) { return c.List(ctx, q) })
}

func (l *link) Commit(ctx context.Context, writes ...store.Write) error {
	if err := l.fails(); err != nil {
		return err
	}
	l.mu.Lock()
	pause := l.pause
	l.mu.Unlock()
	if pause != nil && pause(writes) {
		<-l.gate
		ctx = context.WithoutCancel(ctx) // it was already under way
	}
	if err := l.catalog().Commit(ctx, writes...); err != nil {
		return err
	}
	return l.fails() // the answer may be lost
}

// slow is a store that takes a while to answer.
type slow struct {
	store.Catalog

	takes time.Duration
	reads atomic.Int64
}

func (s *slow) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	s.reads.Add(1)
	time.Sleep(s.takes) // virtual time: in a bubble
	return s.Catalog.Get(ctx, keys...)
}

// node is one process of a cell.
type node struct {
	cell     string
	agent    *cells.Agent
	registry *link
	local    *link
}

// world is a registry and cells. Each cell has a store of its own, which never fails unless a test makes it.
type world struct {
	t        *testing.T
	reg      cells.Registry
	registry store.Store
	stores   map[string]store.Store
	nodes    []*node
	alone    bool
	highest  int64 // the most that cells used together, of the default
	stop     chan struct{}
	watching sync.WaitGroup
}

func newWorld(t *testing.T, set func(*cells.Settings)) *world {
	t.Helper()
	w := &world{t: t, registry: memory.New(nil), stores: make(map[string]store.Store), stop: make(chan struct{})}
	w.reg = cells.Registry{Catalog: w.registry}
	if err := w.reg.Set(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	w.watching.Go(w.watch)
	return w
}

// watch sums the shares in use, every 50 ms.
func (w *world) watch() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			synctestMu.Lock()
			w.highest = max(w.highest, w.inForce(cells.Default))
			synctestMu.Unlock()
		}
	}
}

// synctestMu guards the nodes of worlds: tests add nodes while they are watched.
var synctestMu sync.Mutex

// inForce sums the shares in use: for each cell, the largest that any of its processes uses.
func (w *world) inForce(namespace string) (sum int64) {
	most := make(map[string]int64)
	for _, n := range w.nodes {
		s := n.agent.Share(namespace)
		if s.Until.IsZero() || time.Now().Before(s.Until) {
			most[n.cell] = max(most[n.cell], s.Num)
		}
	}
	for _, n := range most {
		sum += n
	}
	return sum
}

// peak returns the largest sum of shares in use since the previous call.
func (w *world) peak() float64 {
	synctestMu.Lock()
	defer synctestMu.Unlock()
	p := float64(w.highest) / float64(cells.Whole)
	w.highest = 0
	return p
}

// shares returns the share that the first process of each cell uses, as a fraction of 1.
func (w *world) shares(namespace string) []float64 {
	var out []float64
	seen := make(map[string]bool)
	for _, n := range w.nodes {
		if !seen[n.cell] {
			seen[n.cell] = true
			out = append(out, float64(n.agent.Share(namespace).Num)/float64(cells.Whole))
		}
	}
	return out
}

func (w *world) join(names ...string) {
	w.t.Helper()
	for _, name := range names {
		if err := w.reg.Join(w.t.Context(), name); err != nil {
			w.t.Fatal(err)
		}
	}
}

// start runs a process of a cell.
func (w *world) start(cell string) *node {
	w.t.Helper()
	if w.stores[cell] == nil {
		w.stores[cell] = memory.New(nil)
	}
	n := &node{cell: cell, registry: &link{Catalog: w.registry, gate: make(chan struct{})}, local: &link{Catalog: w.stores[cell]}}
	a, err := cells.New(cells.Config{Registry: n.registry, Local: n.local, Cell: cell, Alone: w.alone})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := a.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	n.agent = a
	synctestMu.Lock()
	defer synctestMu.Unlock()
	w.nodes = append(w.nodes, n)
	return n
}

// end closes everything.
func (w *world) end() {
	close(w.stop)
	w.watching.Wait()
	for _, n := range w.nodes {
		_ = n.agent.Close() // it may be cut off
	}
	for _, st := range w.stores {
		_ = st.Close()
	}
	_ = w.registry.Close()
}

func (w *world) want(namespace string, want ...float64) {
	w.t.Helper()
	have := w.shares(namespace)
	if len(have) != len(want) {
		w.t.Fatalf("shares are %v, want %v", have, want)
	}
	for i := range want {
		if d := have[i] - want[i]; d > 0.001 || d < -0.001 {
			w.t.Fatalf("shares are %v, want %v", have, want)
		}
	}
}

// admits checks which processes, in the order in which they were started, have a share.
func (w *world) admits(want ...bool) {
	w.t.Helper()
	for i, n := range w.nodes {
		if n.agent.Admits() != want[i] {
			w.t.Errorf("process %d, of cell %s: has a share: %t, want %t", i, n.cell, !want[i], want[i])
		}
	}
}

func (w *world) peakAtMost(most float64) {
	w.t.Helper()
	if p := w.peak(); p > most+1e-9 {
		w.t.Fatalf("cells went by %.3f of the limit together, want at most %.3f", p, most)
	}
}

// strictly is long enough for a strict change: two confirmations of shares that are valid for 4 s, and the decisions made
// under them.
const strictly = 20 * time.Second

func strict(s *cells.Settings)    { s.Mode = cells.Strict }
func available(s *cells.Settings) { s.Mode = cells.Available }

// bubble runs a test in virtual time.
func bubble(t *testing.T, set func(*cells.Settings), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, set)
		defer w.end()
		f(w)
	})
}
