package cells_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store/memory"
)

// limited is a cell with a limiter.
type limited struct {
	agent *cells.Agent
	lim   *weir.Limiter
}

// newLimited starts a cell of one process, with a limit of 100 requests a second across all cells.
func newLimited(t *testing.T, reg cells.Registry, name string, whole ...bool) limited {
	t.Helper()
	if err := reg.Join(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	st := memory.New(nil)
	var lim *weir.Limiter
	agent, err := cells.New(cells.Config{Registry: reg.Catalog, Local: st, Cell: name, Alone: true, Changed: func() { parts.Of(lim).Policies.SharesChanged() }})
	if err != nil {
		t.Fatal(err)
	}
	cfg := weir.Config{Store: st, Observer: &weir.Observer{
		Decided: func(_ context.Context, e weir.DecidedEvent) { agent.Count(e) },
	}}
	if lim, err = weir.New(cfg); err != nil {
		t.Fatal(err)
	}
	parts.Of(lim).Meter.Tap(agent.Debited)
	if parts.Of(lim).Policies.Use(agent, nil); len(whole) > 0 {
		parts.Of(lim).Policies.Use(wholeShares{}, nil)
	}
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 100)); err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return limited{agent, lim}
}

// wholeShares are those of a process that disregards its cell's share.
type wholeShares struct{}

func (wholeShares) Share(string) policy.Share { return policy.Whole }

func (wholeShares) Stale(context.Context, uint64) {}

func (l limited) close() {
	_ = l.agent.Close()
	_ = l.lim.Close()
}

// load offers requests for a while at random times, perSecond in each of the two cells, and returns how many were refused
// and how many were made.
func load(t *testing.T, r *rand.Rand, two [2]limited, perSecond [2]int, d time.Duration) (refused, of int) {
	t.Helper()
	const step = 10 * time.Millisecond
	for range d / step {
		for i, c := range two {
			for range 10 { // ten chances in each step
				if r.IntN(1000) >= perSecond[i] {
					continue
				}
				of++
				switch ok, err := c.lim.Allow(context.Background(), "tenant", "api"); {
				case err != nil:
					t.Fatal(err)
				case !ok:
					refused++
				}
			}
		}
		time.Sleep(step) // virtual time: in the caller's bubble
	}
	return refused, of
}

// A tenant whose traffic moves from one cell to the other is refused allowed requests for a short time only.
func TestDemandMoves(t *testing.T) {
	t.Parallel()
	for _, mode := range []cells.Mode{cells.Strict, cells.Available} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := memory.New(nil)
				defer registry.Close()
				reg := cells.Registry{Catalog: registry}
				if err := reg.Set(t.Context(), func(s *cells.Settings) { s.Mode, s.Weights = mode, cells.Offered }); err != nil {
					t.Fatal(err)
				}
				two := [2]limited{newLimited(t, reg, "a"), newLimited(t, reg, "b")}
				defer two[0].close()
				defer two[1].close()
				time.Sleep(5 * time.Second)
				r := rand.New(rand.NewPCG(1, 2))
				const half = 30 * time.Second
				load(t, r, two, [2]int{88, 10}, 3*half)
				if refused, of := load(t, r, two, [2]int{88, 10}, half); refused*20 > of {
					t.Errorf("settled: %d of %d are refused", refused, of)
				}
				moved, of := load(t, r, two, [2]int{10, 88}, half)
				if moved*5 < of {
					t.Errorf("only %d of %d are refused at first: this tests nothing", moved, of)
				}
				load(t, r, two, [2]int{10, 88}, 2*half)
				refused, again := load(t, r, two, [2]int{10, 88}, half)
				t.Logf("of %d requests %d are refused in the first half-life, %d in the fourth", again, moved, refused)
				if refused*20 > again {
					t.Errorf("after three half-lives %d of %d are refused", refused, again)
				}
				// An idle cell can admit the first requests.
				load(t, r, two, [2]int{0, 88}, 3*half)
				if ok, err := two[0].lim.Allow(t.Context(), "tenant", "api"); err != nil || !ok {
					t.Errorf("the first request of an idle cell: %v, %v", ok, err)
				}
			})
		})
	}
}

// The total admitted by all cells is reported: no excess while each cell uses its share, and the size of the excess if
// one uses the whole.
func TestAdmittedMeasured(t *testing.T) {
	t.Parallel()
	for name, unsplit := range map[string]bool{"shares": false, "one goes by the whole": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := memory.New(nil)
				defer registry.Close()
				reg := cells.Registry{Catalog: registry}
				two := [2]limited{newLimited(t, reg, "a"), {}}
				if two[1] = newLimited(t, reg, "b"); unsplit {
					two[1].close()
					if err := reg.Remove(t.Context(), "b", true); err != nil {
						t.Fatal(err)
					}
					two[1] = newLimited(t, reg, "b", true)
				}
				defer two[0].close()
				defer two[1].close()
				time.Sleep(20 * time.Second)
				r := rand.New(rand.NewPCG(3, 4))
				for range 50 { // a lease that returns what it did not need
					lease, err := two[0].lim.Acquire(t.Context(), weir.Request{Entity: "lease", Resource: "api", Tokens: weir.Tokens{"rps": 40}})
					if err == nil {
						_, err = lease.Adjust(t.Context(), weir.Tokens{"rps": -40})
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				load(t, r, two, [2]int{300, 300}, 4*time.Minute)
				for _, l := range two {
					view := l.agent.Status().View
					if got := view.Admitted("default"); !unsplit && got != 1 || unsplit && (got < 1.4 || got > 1.6) {
						t.Errorf("%.2f of the limit was admitted", got)
					}
				}
			})
		})
	}
}

// Limits that are changed in one of two cells are found, and no longer once the other has them, too.
func TestLimitsThatDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := memory.New(nil)
		defer registry.Close()
		reg := cells.Registry{Catalog: registry}
		two := [2]limited{newLimited(t, reg, "a"), newLimited(t, reg, "b")}
		defer two[0].close()
		defer two[1].close()
		time.Sleep(20 * time.Second)
		r := rand.New(rand.NewPCG(1, 2))
		differ := func(d time.Duration, want ...string) {
			t.Helper()
			load(t, r, two, [2]int{30, 30}, d)
			if v, err := reg.Inspect(t.Context()); err != nil || !slices.Equal(v.Differ, want) {
				t.Errorf("%v differ, want %v; error %v", v.Differ, want, err)
			}
		}
		set := func(c limited) {
			t.Helper()
			if err := admin.New(c.lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerSecond("rps", 120)); err != nil {
				t.Fatal(err)
			}
		}
		differ(10 * time.Second)
		set(two[0])
		differ(10*time.Second, "default")
		set(two[1])
		differ(80 * time.Second)
	})
}
