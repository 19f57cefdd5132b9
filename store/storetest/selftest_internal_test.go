package storetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/internal/env"
)

// White-box: failures cannot be shown through Run.
func TestMain(m *testing.M) {
	// Properties are made to fail here, and the smallest failing history is of no interest.
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "1ns"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func refHarness(flaw string) Harness {
	return Harness{
		Open: func(_ testing.TB, clock *Clock) store.Store { return newReference(clock.Now, flaw) },
		Peer: func(_ testing.TB, s store.Store, _ *Clock) store.Store {
			return s.(*reference).peer()
		},
		Throttle: func(_ testing.TB, s store.Store, b store.Bucket) func() {
			s.(*reference).hot.Store(&b)
			return func() { s.(*reference).hot.Store(nil) }
		},
		Cut: func(_ testing.TB, s store.Store, n int, made bool) func() int {
			c := &refCut{left: n, made: made}
			s.(*reference).cut.Store(c)
			return func() int {
				s.(*reference).cut.Store(nil)
				return c.calls
			}
		},
		Caps: Caps{HandClock: true, AtomicTake: true, Quotas: true, Credits: true},
	}
}

func TestReference(t *testing.T) {
	t.Parallel()
	Run(t, refHarness(""))
}

// TestReferenceWallClock checks that the suite asks for nothing that was not claimed.
func TestReferenceWallClock(t *testing.T) {
	t.Parallel()
	h := refHarness("")
	h.Open = func(testing.TB, *Clock) store.Store { return newReference(time.Now, "") }
	h.Caps = Caps{Remote: true}
	Run(t, h)
}

func TestReferenceTorture(t *testing.T) {
	t.Parallel()
	Torture(t, refHarness(""), time.Second)
}

// flaws maps what can be wrong with a store to the scenarios that must notice it.
var flaws = map[string][]string{
	"a millitoken too many":              {"linear/one bucket", "linear/two buckets", "take/exactly what is there", "invariants/I1 never over-admit", "linear/a quota", "linear/a balance", "balances/I1 and I2 with shadow charges"},
	"a millitoken too few":               {"take/exactly what is there", "invariants/I2 never lose", "vectors/1-4 drain and wait", "invariants/I6 retryAfter is tight", "balances/I1 and I2 with shadow charges"},
	"half a take":                        {"linear/two buckets", "linear/three buckets", "take/all or none over buckets", "invariants/I2 never lose", "protocols/takers of two buckets", "linear/quotas of three buckets", "linear/balances of three buckets", "balances/I1 and I4 when the clock jumps back", "grid/each call fails"},
	"loses a return":                     {"linear/two buckets", "settle/returns", "invariants/I2 never lose", "concurrency/returns", "linear/a balance", "balances/I1 and I2 with shadow charges"},
	"looks before it leaps":              {"linear/one bucket", "concurrency/a thousand on one bucket", "concurrency/opposite orders", "linear/a quota", "linear/a balance"},
	"nothing is free in debt":            {"take/nothing of a limit in debt", "vectors/15 held back by what it owes", "invariants/I4 time never runs backwards"},
	"any debt":                           {"terms/at most so much debt", "terms/at most so much debt, at once", "terms/at most so much debt of a new bucket"},
	"forgives what is spent":             {"terms/forgiven"},
	"gives back what was issued":         {"terms/strict returns", "terms/strict returns by others", "invariants/strict returns bound what is kept"},
	"gives back after the window":        {"quotas/returns", "quotas/I2 never lose", "quotas/returns bound what is kept", "linear/a quota"},
	"a boost costs months":               {"quotas/changes"},
	"former limits return":               {"phases/before and after", "phases/a boost and clocks of callers apart"},
	"any epoch":                          {"terms/strict returns", "terms/strict returns after a change"},
	"force asks":                         {"take/forced"},
	"forces though refused":              {"take/forced beside a refusal", "invariants/I2 never lose"},
	"a shadow refuses":                   {"shadow/does not fit", "shadow/never in debt", "invariants/I2 with shadow charges"},
	"a shadow is forced":                 {"shadow/does not fit", "shadow/never in debt", "shadow/counters", "shadow/then enforced", "shadow/at once", "invariants/I2 with shadow charges"},
	"a shadow says nothing":              {"shadow/does not fit", "shadow/larger than the burst", "shadow/several buckets", "shadow/overrides"},
	"a shadow counts nothing":            {"shadow/fits", "shadow/several of a bucket", "invariants/I2 with shadow charges"},
	"a shadow is charged though refused": {"shadow/beside a refusal", "invariants/I2 with shadow charges"},
	"any shadow":                         {"shadow/mistakes"},
	"flags one refusal":                  {"take/levels of every refusal", "invariants/I2 never lose"},
	"sorts levels":                       {"take/levels"},
	"forgets nothing":                    {"buckets/forget", "protocols/forgotten while others debit"},
	"buckets twice":                      {"mistakes/a bucket twice"},
	"negative amounts":                   {"mistakes/negative amounts"},
	"overflows":                          {"mistakes/forced past the largest level"},
	"half before an error":               {"limits/stale beside others"},
	"idling is credited twice":           {"invariants/I1 never over-admit", "vectors/1-4 drain and wait"},
	"stale limits":                       {"limits/stale", "protocols/limits changed while others debit", "invariants/I2 through changes of limits", "epoch/stamps limits"},
	"a change forgives":                  {"limits/lowered", "vectors/11-12 the limit changes", "invariants/I2 through changes of limits", "concurrency/a change of limits"},
	"a removed limit is forgotten":       {"limits/removed and added again"},
	"overrides by name":                  {"overrides/known by name and parameters"},
	"any number of overrides":            {"overrides/too many"},
	"ids run together":                   {"ids/never collide"},
	"a return makes a bucket":            {"settle/return to no bucket", "buckets/reads make nothing"},
	"a look makes a bucket":              {"buckets/reads make nothing"},
	"a look rounds down":                 {"invariants/I3 polling-free", "invariants/I2 never lose", "balances/I3 polling-free"},
	"a settle changes limits":            {"settle/other parameters"},
	"gives back more than there was":     {"settle/more than was taken"},
	"settles again":                      {"once/twice", "protocols/a settle sent three times", "grid/each call fails"},
	"looks before it settles":            {"once/at once", "once/at once from two clients"},
	"never expires":                      {"once/expired"},
	"credits again":                      {"credits/repeated", "credits/at once", "credits/lost answers", "credits/random"},
	"looks before it credits":            {"credits/at once"},
	"any amount":                         {"credits/another amount"},
	"a return to nothing":                {"credits/random", "credits/settled"},
	"credit ids of all tenants":          {"credits/ids of others"},
	"an overflow uses up the id":         {"credits/too much"},
	"credits a rate":                     {"credits/another kind"},
	"a balance becomes a rate":           {"credits/another kind"},
	"forgets balances":                   {"credits/reset"},
	"any limit":                          {"slots/or none"},
	"counts net":                         {"counters/forced and given back", "counters/random"},
	"ids of births repeat":               {"counters/id of a birth", "ids/never collide"},
	"forgets debtors":                    {"time/idle debtors"},
	"keeps for the first limit":          {"owed/several limits", "owed/settled", "owed/one limit after another"},
	"time runs backwards":                {"time/back to before an eviction"},
	"trouble spreads":                    {"tenants/mistakes of another", "tenants/a throttled key of another"},
	"works after close":                  {"closed/every method"},
	"ignores contexts":                   {"closed/cancelled context"},
	"overwrites":                         {"catalog/conflicts", "catalog/compare and set at once", "protocols/records changed by two"},
	"half a commit":                      {"catalog/all or none", "catalog/all or none across namespaces"},
	"checks nothing":                     {"catalog/checks"},
	"a check writes":                     {"catalog/checks"},
	"a key twice":                        {"catalog/mistakes"},
	"versions go on":                     {"catalog/deletes"},
	"nothing expires":                    {"catalog/expiry"},
	"shares values":                      {"catalog/values are not shared"},
	"epochs stand still":                 {"epoch/raised by every commit"},
	"one epoch for all":                  {"epoch/of the namespaces that it names"},
	"the epoch is read last":             {"epoch/never newer than the records"},
	"orders ids run together":            {"list/order", "list/random"},
	"any cursor":                         {"list/cursors of others"},
	"any position":                       {"list/forged cursors", "buckets/forged cursors"},
	"any case":                           {"list/by prefix"},
	"pages by number":                    {"list/while records come and go"},
}

// TestFlaws shows that a store that breaks the contract does not pass.
func TestFlaws(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a brief run may miss a flaw")
	}
	scenarios := map[string]env.Scenario{}
	for _, su := range suites() {
		for _, sc := range su.Scenarios {
			scenarios[su.Name+"/"+sc.Name] = sc
		}
	}
	for flaw, names := range flaws {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			for _, name := range names {
				sc, ok := scenarios[name]
				if !ok {
					t.Fatalf("no scenario %q", name)
				}
				if !fails(t, func(tb testing.TB) { sc.Run(tb, refHarness(flaw)) }) {
					t.Errorf("%q does not notice", name)
				}
			}
		})
	}
}

// TestTortureFlaws shows that neither does a store whose flaw appears only in the books.
func TestTortureFlaws(t *testing.T) {
	t.Parallel()
	for _, flaw := range []string{
		"a millitoken too many", "half a take", "loses a return", "looks before it leaps", "a change forgives", "counts net", "idling is credited twice",
		"a shadow is forced", "a shadow says nothing", "a shadow is charged though refused",
	} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			if !fails(t, func(tb testing.TB) { Torture(tb, refHarness(flaw), 20*time.Second) }) {
				t.Error("torture does not notice")
			}
		})
	}
}

// fails reports whether a test fails, without failing t.
func fails(t *testing.T, f func(testing.TB)) bool {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		f(r)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r.Failed()
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failed   error
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Log(...any)          {}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) ArtifactDir() string { return r.TempDir() }

func (r *recorder) Error(args ...any) { r.fail(fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }

func (r *recorder) Fail() { r.fail("failed") }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed != nil
}

func (r *recorder) fail(msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = errors.New(msg)
	}
}
