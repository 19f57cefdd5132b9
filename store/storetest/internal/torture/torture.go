// Package torture puts a store under a long random load, and checks its books against the callers' answers.
package torture

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

const (
	workers     = 8
	calls       = 250 // per worker and round
	bucketCount = 12
	// ahead is more than is ever debited ahead in a round.
	ahead = 1 << 50
	// enough is how many decisions a run of at least a minute must reach to be useful.
	enough = 100_000
)

// Time returns how long to torture: WEIR_TORTURE if set, otherwise one minute if CI is true, otherwise five
// seconds.
func Time(t testing.TB) time.Duration {
	t.Helper()
	if s := os.Getenv("WEIR_TORTURE"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("WEIR_TORTURE: %v", err)
		}
		return d
	}
	if os.Getenv("CI") == "true" {
		return time.Minute
	}
	return 5 * time.Second
}

func seedOf(t testing.TB) uint64 {
	t.Helper()
	if s := os.Getenv("WEIR_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("WEIR_SEED: %v", err)
		}
		return seed
	}
	return rand.Uint64()
}

// Run lets many callers work on a few buckets for the given time: takes of several buckets, some forced, some in
// shadow, returns, peeks and lists, changes of limits in some rounds, and now and then a jump of the clock. A duration
// of 0 means [Time].
//
// The callers rest between rounds. Their answers, and what the buckets then show, must satisfy the following, in
// whatever order the store handled the calls:
//
//   - I1, from any rest to any later one: debits - returns <= burst + clock(last debit) - clock(first debit);
//   - nothing spent is lost: a level rises by at least what was spent less what was returned;
//   - nothing unspent is lost: a level rises by no more than what was spent, once it is ahead of the clock;
//   - the counters count exactly that;
//   - what is spent and left of a balance is what was credited.
//
// It logs its seed, which WEIR_SEED sets.
func Run(t testing.TB, h Harness, d time.Duration) {
	t.Helper()
	if d == 0 {
		d = Time(t)
	}
	seed := seedOf(t)
	t.Logf("WEIR_SEED=%d for %v", seed, d)
	e := Open(t, t, h, Noon)
	clients := []store.Store{e.Store}
	if h.Peer != nil {
		clients = append(clients, e.Peer().Store)
	}
	begin := time.Now()
	decisions, rounds, err := torture(e, clients, seed, func() bool { return time.Since(begin) < d })
	t.Logf("%d decisions in %d rounds", decisions, rounds)
	if err != nil {
		t.Fatalf("WEIR_SEED=%d: %v", seed, err)
	}
	if d >= time.Minute && decisions < enough && !h.Caps.Remote {
		t.Fatalf("%d decisions in %v, want %d", decisions, d, enough)
	}
}

// torture runs rounds while more returns true.
func torture(e *Env, clients []store.Store, seed uint64, more func() bool) (decisions, rounds int, err error) {
	r := rand.New(rand.NewPCG(seed, 0))
	g := newGround(e, r)
	g.clients = clients
	for ; more(); rounds++ {
		n, err := g.round(clients, seed, rounds)
		decisions += n
		if err != nil {
			return decisions, rounds, fmt.Errorf("round %d: %w", rounds, err)
		}
		if e.Harness.Caps.HandClock {
			switch r.IntN(12) {
			case 0:
				e.Clock.Advance(time.Hour)
			case 1:
				if e.Harness.Caps.Ahead { // each item of a split bucket has a time of its own
					continue
				}
				e.Clock.Advance(-time.Duration(r.Int64N(int64(time.Hour))))
			case 2, 3:
				e.Clock.Advance(time.Duration(r.Int64N(int64(3 * time.Second))))
			}
		}
	}
	return decisions, rounds, nil
}

// slot is a limit of a bucket.
type slot struct {
	bucket store.Bucket
	limit  *store.Limit
}

// ground is the state that torture works on.
type ground struct {
	*Env

	clients []store.Store
	buckets []store.Bucket
	limits  [2]*store.Limit // of every bucket, except that every fourth has a balance instead of the second one
	epoch   uint64
	rounds  int64 // after a rest, each of which tops up the balances
	places  map[slot]*reckon.Books
	funds   map[store.Bucket]fund
}

// prepaid is the balance of every fourth bucket, and topUp what it gets before a round, in millitokens.
var prepaid = store.Balance("credits")

const topUp = 10_000_000

// on returns those of limits that the i-th bucket has.
func on(i int, limits [2]*store.Limit) [2]*store.Limit {
	if i%4 == 3 {
		limits[1] = prepaid
	}
	return limits
}

// quiesce waits for the background work of all clients.
func (g *ground) quiesce() {
	g.Helper()
	if g.Harness.Quiesce != nil {
		for _, c := range g.clients {
			g.Harness.Quiesce(g.Outer, c)
		}
	}
}

func newGround(e *Env, r *rand.Rand) *ground {
	g := &ground{Env: e, places: map[slot]*reckon.Books{}, funds: map[store.Bucket]fund{}}
	for i := range bucketCount {
		g.buckets = append(g.buckets, store.Bucket{
			Namespace: fmt.Sprint("ns-", i%3), Entity: fmt.Sprint("entity-", r.IntN(100), "/", i),
			Resource: "openai/gpt-4o",
		})
	}
	g.change(r)
	return g
}

// windows are those of quotas.
var windows = []string{"hour@UTC", "day@Europe/Berlin", "week+sun@Asia/Kolkata", "month+31@America/New_York"}

// change draws new limits and starts the books anew.
func (g *ground) change(r *rand.Rand) {
	g.epoch++
	for i, name := range []string{"rpm", "tpm"} {
		if r.IntN(3) == 0 {
			l := &store.Limit{Name: name, Amount: 1 + r.Int64N(1_000_000)}
			l.Burst = l.Amount
			if err := l.Window.UnmarshalText([]byte(windows[r.IntN(len(windows))])); err != nil {
				g.Fatalf("%v", err)
			}
			g.limits[i] = l
			continue
		}
		g.limits[i] = &store.Limit{
			Name: name, Amount: 1 + r.Int64N(10_000_000), Period: time.Duration(1 + r.Int64N(int64(time.Minute))),
			Burst: 1 + r.Int64N(1_000_000),
		}
		if g.limits[i].Amount > 4*int64(g.limits[i].Period) {
			g.limits[i].Amount = 4 * int64(g.limits[i].Period)
		}
	}
	clear(g.places)
}

// round runs the workers once and checks what they did.
func (g *ground) round(clients []store.Store, seed uint64, round int) (decisions int, err error) {
	if round%5 == 4 {
		return g.changing(clients, seed, round)
	}
	if err := g.rest(); err != nil {
		return 0, err
	}
	decisions, done, err := g.loose(clients, seed, round, func(*rand.Rand) ([2]*store.Limit, uint64) {
		return g.limits, g.epoch
	})
	if err != nil {
		return decisions, err
	}
	for s, t := range done {
		g.places[s].Add(t)
	}
	if g.Harness.Caps.HandClock && !g.Harness.Caps.Ahead {
		if err := g.drain(); err != nil {
			return decisions, err
		}
	}
	return decisions, g.reckon()
}

// drain takes the last millitoken of every bucket, and then tries one more.
func (g *ground) drain() error {
	g.quiesce()
	for k, b := range g.buckets {
		limits := on(k, g.limits)
		// A take returns what is available to the next one. A look may be earlier, if the clock went back.
		d := At(
			g.epoch,
			Debit(b, store.Charge{Limit: limits[0], Force: true}, store.Charge{Limit: limits[1], Force: true}),
		)
		seen, err := g.Store.Take(g.Context(), store.Take{Debits: []store.Debit{d}})
		if err != nil || !seen.Allowed {
			return fmt.Errorf("%v: nothing is refused: %s: error %w", b, Show(seen), err)
		}
		d.Charges = nil
		for i, l := range limits {
			c := store.Charge{Limit: l, Amount: reckon.Room(l, seen.Levels[i].Level, seen.At)}
			if c.Amount < 0 {
				c.Amount, c.Force = 0, true
			}
			d.Charges = append(d.Charges, c)
		}
		out, err := g.Store.Take(g.Context(), store.Take{Debits: []store.Debit{d}})
		if err != nil || !out.Allowed {
			return fmt.Errorf("%v: what is available is refused: %s: error %w", b, Show(out), err)
		}
		for i, c := range d.Charges {
			if !c.Force && c.Amount > 0 {
				t := reckon.NewTally()
				t.Debited, t.First, t.Last = c.Amount, reckon.Reading(c.Limit, out.At), reckon.Reading(c.Limit, out.At)
				g.places[slot{b, c.Limit}].Add(t)
			}
			d.Charges[i].Amount, d.Charges[i].Force = 0, true
		}
		d.Charges[0].Amount, d.Charges[0].Force = 1, false
		if out, err = g.Store.Take(g.Context(), store.Take{Debits: []store.Debit{d}}); err != nil || out.Allowed {
			return fmt.Errorf("%v: more than was available is admitted: %s: error %w", b, Show(out), err)
		}
	}
	return nil
}

// changing is a round in which the limits change; half of the callers' takes use the new ones from the start. A change
// keeps what is outstanding, so the larger burst and the faster clock bound what is admitted, except for the
// millitokens by which their clocks are rounded down.
func (g *ground) changing(clients []store.Store, seed uint64, round int) (decisions int, err error) {
	old, oldEpoch := g.limits, g.epoch
	g.change(rand.New(rand.NewPCG(seed, uint64(round)<<8)))
	g.quiesce()
	before := g.looks()
	decisions, done, err := g.loose(clients, seed, round, func(r *rand.Rand) ([2]*store.Limit, uint64) {
		if r.IntN(2) == 0 {
			return old, oldEpoch
		}
		return g.limits, g.epoch
	})
	if err != nil {
		return decisions, err
	}
	if err := g.settleLimits(); err != nil {
		return decisions, err
	}
	g.quiesce()
	after := g.looks()
	for i, b := range g.buckets {
		for j, l := range on(i, g.limits) {
			old := on(i, old)
			if reckon.Quota(l) || reckon.Quota(old[j]) || l == prepaid { // more than this may be kept or forgiven
				continue
			}
			sum := reckon.NewTally()
			for _, l := range []*store.Limit{l, old[j]} {
				if t, ok := done[slot{b, l}]; ok {
					sum.Add(t)
				}
			}
			issued := max(
				reckon.Reading(l, after[i].At)-reckon.Reading(l, before[i].At),
				reckon.Reading(old[j], after[i].At)-reckon.Reading(old[j], before[i].At),
			) + 2 // rounded down before and after
			if most := max(l.Burst, old[j].Burst) + issued; sum.Debited-sum.Returned > most {
				return decisions, fmt.Errorf(
					"%v %s: %d debited and %d returned while the limit changed, at most %d", b, l.Name, sum.Debited,
					sum.Returned, most,
				)
			}
			owed := func(snap store.Snapshot) int64 {
				if m := reckon.Find(snap.States[0], l); m != nil {
					return reckon.Outstanding(m.Limit, m.Level, snap.At)
				}
				return 0
			}
			if least := owed(before[i]) + sum.Debited + sum.Forced - sum.Returned - issued; owed(after[i]) < least {
				return decisions, fmt.Errorf(
					"%v %s: lost while the limit changed: %d outstanding, at least %d", b, l.Name, owed(after[i]),
					least,
				)
			}
		}
	}
	return decisions, nil
}

// looks peeks at the buckets one by one: if the clock went back, each may have its own time.
func (g *ground) looks() []store.Snapshot {
	snaps := make([]store.Snapshot, len(g.buckets))
	for i, b := range g.buckets {
		snaps[i] = g.Peek(b)
	}
	return snaps
}

// settleLimits makes every bucket adopt the newest limits.
func (g *ground) settleLimits() error {
	for i, b := range g.buckets {
		limits := on(i, g.limits)
		d := At(g.epoch, Debit(b, store.Charge{Limit: limits[0]}, store.Charge{Limit: limits[1]}))
		if _, err := g.Store.Take(g.Context(), store.Take{Debits: []store.Debit{d}}); err != nil {
			return err
		}
	}
	return nil
}

// rest tops up the balances, twice by the same id, and reads all buckets before a round.
func (g *ground) rest() error {
	g.quiesce()
	g.rounds++
	for i, b := range g.buckets {
		for range 2 * len(g.clients) {
			if on(i, g.limits)[1] != prepaid {
				break
			}
			c := store.Credit{Bucket: b, Limit: prepaid.Name, Amount: topUp, ID: fmt.Sprint(g.rounds)}
			if _, err := g.Store.Credit(g.Context(), c); err != nil {
				return err
			}
		}
		snap, err := g.Store.Peek(g.Context(), b)
		if err != nil {
			return err
		}
		if err := g.credited(snap.States[0], topUp); err != nil {
			return fmt.Errorf("%v after a credit: %w", b, err)
		}
		for _, l := range on(i, g.limits) {
			p := g.places[slot{b, l}]
			if p == nil {
				p = reckon.NewBooks()
				g.places[slot{b, l}] = p
			}
			p.Rest(snap.States[0], snap.At)
			if g.Harness.Caps.Ahead { // the first debit may be of tokens that no answer shows
				p.First, p.MaybeDebited = reckon.Reading(l, snap.At), ahead
			}
		}
	}
	return nil
}

// loose runs the workers once and returns what they did.
func (g *ground) loose(
	clients []store.Store, seed uint64, round int, limits func(*rand.Rand) ([2]*store.Limit, uint64),
) (decisions int, done map[slot]reckon.Tally, err error) {
	var (
		mu   sync.Mutex
		errs []error
	)
	done = map[slot]reckon.Tally{}
	g.Each(workers, func(i int) {
		w := worker{
			ground: g, store: clients[i%len(clients)], r: rand.New(rand.NewPCG(seed, uint64(round)<<8+uint64(i)+1)),
			limits: limits, tallies: map[slot]reckon.Tally{}, calm: round%2 == 0,
		}
		err := w.work()
		mu.Lock()
		defer mu.Unlock()
		decisions += w.decisions
		if err != nil {
			errs = append(errs, err)
		}
		for s, t := range w.tallies {
			count(done, s, t)
		}
	})
	return decisions, done, errors.Join(errs...)
}

// reckon checks every limit of every bucket after a round.
func (g *ground) reckon() error {
	g.quiesce()
	for s, p := range g.places {
		snap, err := g.Store.Peek(g.Context(), s.bucket)
		if err != nil {
			return err
		}
		after := snap.States[0]
		err = cmp.Or(p.Admitted(s.limit), p.Level(s.limit, after, snap.At), g.counted(s, after), g.credited(after, 0))
		if err != nil {
			return fmt.Errorf("%v %s: %w", s.bucket, s.limit.Name, err)
		}
	}
	return nil
}

// credited checks that what is spent and left of a balance is what it was at the last rest, and what was credited
// since. What is debited ahead is neither. A bucket may be forgotten while nothing is left, and is then born again.
func (g *ground) credited(st store.State, since int64) error {
	l, was := reckon.Find(st, prepaid), g.funds[st.Bucket]
	if l == nil {
		return nil
	}
	sum, want := l.Debited-l.Returned-l.Level, since
	if st.ID == was.birth {
		want += was.sum
	}
	if g.Harness.Caps.Ahead {
		if want = g.rounds * topUp; sum < want {
			return nil
		}
	}
	if sum != want {
		return fmt.Errorf("%d are spent or left of %d credited", sum, want)
	}
	g.funds[st.Bucket] = fund{st.ID, sum}
	return nil
}

// fund is what is spent and left of a balance since a bucket's birth.
type fund struct {
	birth uint64
	sum   int64
}

// counted checks the counters of a bucket that existed before, where only admitted takes are visible.
func (g *ground) counted(s slot, after store.State) error {
	if !g.Harness.Caps.AtomicTake {
		return nil
	}
	return g.places[s].Counted(s.limit, after, false)
}
