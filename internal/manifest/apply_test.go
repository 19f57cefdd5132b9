package manifest_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// many returns a manifest that declares limits for n entities.
func many(t *testing.T, n, capacity int) *manifest.Manifest {
	t.Helper()
	var b strings.Builder
	b.WriteString("namespace: default\nentities:\n")
	for i := range n {
		fmt.Fprintf(&b, "  e%04d: {resources: {r: {limits: {rpm: {capacity: %d}}}}}\n", i, capacity)
	}
	return decodeOne(t, b.String())
}

// A bounded rate is kept, and the lock lasts as long as the apply takes.
func TestRate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ rate, records, step int }{{10, 1000, 40}, {1, 100, 10}} {
		synctest.Test(t, func(t *testing.T) {
			lim := limiterOn(t, memory.New(nil))
			var told []int
			began := time.Now()
			done := make(chan struct{})
			var watching sync.WaitGroup
			watching.Go(func() {
				for tick := time.NewTicker(time.Second); ; {
					select {
					case <-done:
						return
					case <-tick.C:
					}
					_, err := admin.New(lim).Manifests.Lock(t.Context(), "default", time.Second)
					if !errors.Is(err, weir.ErrConflict) {
						t.Errorf("after %s the lock is free", time.Since(began))
					}
				}
			})
			p := plan(t, lim, many(t, tt.records, 1))
			progress := func(done, total int) {
				if told = append(told, done); total != tt.records {
					t.Errorf("%d of %d", done, total)
				}
			}
			_, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{Rate: tt.rate, Progress: progress})
			close(done)
			watching.Wait()
			must(t, err)
			want := time.Duration((tt.records-tt.step)/tt.rate) * time.Second
			if took := time.Since(began); took != want {
				t.Errorf("%d records at %d a second took %s, want %s", tt.records, tt.rate, took, want)
			}
			if told[0] != 0 || told[len(told)-1] != tt.records || len(told) != 1+tt.records/tt.step {
				t.Errorf("told %v", told)
			}
		})
	}
}

// Of two concurrent applies, one waits and then finds its plan outdated.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiterOn(t, memory.New(nil))
		plans := []*manifest.Plan{plan(t, lim, many(t, 100, 1)), plan(t, lim, many(t, 100, 2))}
		errs := make([]error, 2)
		waited := 0
		var wg sync.WaitGroup
		for i, p := range plans {
			wg.Go(func() {
				_, errs[i] = manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{
					Rate: 20, Wait: time.Minute, Waiting: func(*admin.LockedError) { waited++ },
				})
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), weir.ErrConflict) || waited != 1 {
			t.Fatalf("%v, %v, %d waited", errs[0], errs[1], waited)
		}
		got, err := admin.New(lim).Limits.Get(t.Context(), admin.Scope{Entity: "e0050", Resource: "r"})
		must(t, err)
		if want := map[bool]int64{true: 1, false: 2}[errs[0] == nil]; got.Limits[0].Amount != want {
			t.Errorf("%v, want %d", got.Limits, want)
		}
	})
}

// If the store stops answering halfway, the result shows it for each item, and nothing is recorded as done.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, lim *weir.Limiter, st *faulty) {
		m := many(t, 100, 1)
		p := plan(t, lim, m)
		st.failAt = st.commits.Load() + 5 // the lock, the list, its place, and a step of 20 of 40
		res, err := manifest.Apply(t.Context(), lim, p, manifest.ApplyOptions{})
		var failed *manifest.FailedError
		var trouble *store.Error
		if !errors.As(err, &failed) || !errors.As(err, &trouble) || res.Created == 0 ||
			len(res.Failed) != 100-res.Created || failed.Failed != len(res.Failed) {
			t.Errorf("%d created, %d failed: %v", res.Created, len(res.Failed), err)
		}
		st.failAt = 0
		state, err := admin.New(lim).Manifests.State(t.Context(), "default")
		must(t, err)
		if rev := state.Last; rev.Revision != 0 {
			t.Errorf("recorded: %+v", rev)
		}
		if p := plan(t, lim, m); p.Unchanged != res.Created || p.Count(manifest.Create) != len(res.Failed) {
			t.Errorf("%d unchanged, %d to create", p.Unchanged, p.Count(manifest.Create))
		}
	})
}

// A plan reads the store in pages.
func TestReadsInPages(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	onStores(t, func(t *testing.T, lim *weir.Limiter, st *faulty) {
		m := many(t, 1500, 1)
		apply(t, lim, m)
		before := st.reads.Load()
		plan(t, lim, m)
		if n := st.reads.Load() - before; n > 1500/100+10 {
			t.Errorf("%d calls", n)
		}
	})
}
