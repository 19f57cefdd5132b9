package storetest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimits/weir/store"
)

// The history of many callers is linearizable if the calls can be put into one order, no later call before one that
// had returned, in which the model gives the same answers. What a store answers is rich: it shows levels and the
// time, so there are few orders to choose from, and little escapes.
func linearScenarios() []scenario {
	hand := Caps{HandClock: true}
	both := Caps{HandClock: true, AtomicTake: true}
	return []scenario{
		{name: "one bucket", need: hand, run: each(func(e *env) { e.linear(1, 1) })},
		{name: "one bucket from two clients", need: hand, peer: true, run: each(func(e *env) { e.linear(1, 1, e.peer().store) })},
		{name: "buckets one by one", need: hand, run: each(func(e *env) { e.linear(3, 1) })},
		{name: "two buckets", need: both, run: each(func(e *env) { e.linear(2, 2) })},
		{name: "three buckets", need: both, run: each(func(e *env) { e.linear(3, 3) })},
	}
}

const (
	linearClients = 4
	linearCalls   = 12
	linearBuckets = 3
)

// linearLimits are those of every bucket.
var linearLimits = [...]*store.Limit{
	{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 10_000},
	{Name: "tpm", Amount: 700_001, Period: time.Minute, Burst: 100_000},
}

// call is what a caller asked: a take, a settle, or a look at one bucket.
type call struct {
	take   []linearDebit
	settle []linearDebit
	peek   int // bucket, if neither
}

type linearDebit struct {
	bucket  int
	amounts [len(linearLimits)]int64
	force   [len(linearLimits)]bool
}

// answer is what the store said, its levels in the order of the call; for a look in that of linearLimits.
type answer struct {
	allowed bool
	at      time.Time
	levels  []store.Level
}

// levels is the model's state: by bucket and limit the reading up to which all is spent.
type levels [linearBuckets][len(linearLimits)]int64

// never is the level of what was never debited.
const never = math.MinInt64 / 2

// linear lets a few clients work on a few buckets at once, and then looks for the order in which they did.
func (e *env) linear(buckets, legs int, peers ...store.Store) {
	e.Helper()
	clients := append([]store.Store{e.store}, peers...)
	for round := range e.some(40) {
		ops := e.observe(clients, fmt.Sprint("round-", round), buckets, legs, uint64(round))
		if e.Failed() {
			return
		}
		if err := checkLinear(ops, e.outer.ArtifactDir); err != nil {
			e.Fatalf("round %d: %v", round, err)
		}
	}
}

func (e *env) observe(clients []store.Store, namespace string, buckets, legs int, seed uint64) []porcupine.Operation {
	names := make([]store.Bucket, buckets)
	for i := range names {
		names[i] = store.Bucket{Namespace: namespace, Entity: fmt.Sprint("entity-", buckets-i), Resource: "api"}
	}
	var (
		mu    sync.Mutex
		ops   []porcupine.Operation
		order atomic.Int64 // tells calls and returns apart better than a clock
	)
	e.each(linearClients, func(i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		var seen levels // what this caller last saw available: a call to the brim is worth ten at random
		for range linearCalls {
			if r.IntN(3) == 0 {
				e.clock.Advance(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			}
			in := drawCall(r, &seen, buckets, legs)
			earliest := e.clock.Now()
			called := order.Add(1)
			out, err := in.ask(e, clients[i%len(clients)], names)
			returned := order.Add(1)
			if latest := e.clock.Now(); err == nil && (out.at.Before(earliest) || out.at.After(latest)) {
				err = fmt.Errorf("decided at %v, called at %v and answered at %v", out.at, earliest, latest)
			}
			if err != nil {
				e.Errorf("%v: %v", in, err)
				return
			}
			in.look(out, &seen)
			mu.Lock()
			ops = append(ops, porcupine.Operation{ClientId: i, Input: in, Call: called, Output: out, Return: returned})
			mu.Unlock()
		}
	})
	return ops
}

func drawCall(r *rand.Rand, seen *levels, buckets, legs int) call {
	kind := r.IntN(8)
	if kind == 0 {
		return call{peek: r.IntN(buckets)}
	}
	var debits []linearDebit
	for _, b := range r.Perm(buckets)[:1+r.IntN(legs)] {
		d := linearDebit{bucket: b}
		for i, l := range linearLimits {
			d.amounts[i] = r.Int64N(l.Burst / 2)
			switch r.IntN(6) {
			case 0:
				d.amounts[i] = 0
			case 1, 2:
				d.amounts[i] = max(0, seen[b][i]+r.Int64N(2))
			}
			if kind <= 2 && r.IntN(4) > 0 {
				d.amounts[i] = -d.amounts[i]
			}
			d.force[i] = kind > 2 && r.IntN(10) == 0
		}
		debits = append(debits, d)
	}
	if kind <= 2 {
		return call{settle: debits}
	}
	return call{take: debits}
}

// look notes what the answer to a take shows to be available.
func (c call) look(a answer, seen *levels) {
	for j, d := range c.take {
		for i := range linearLimits {
			if k := j*len(linearLimits) + i; k < len(a.levels) {
				seen[d.bucket][i] = room(a.levels[k].Limit, a.levels[k].Level, a.at)
			}
		}
	}
}

// ask makes the call.
func (c call) ask(e *env, s store.Store, names []store.Bucket) (answer, error) {
	debits := func(in []linearDebit) (out []store.Debit) {
		for _, d := range in {
			sd := debit(names[d.bucket])
			for i, l := range linearLimits {
				sd.Charges = append(sd.Charges, store.Charge{Limit: l, Amount: d.amounts[i], Force: d.force[i]})
			}
			out = append(out, sd)
		}
		return out
	}
	switch {
	case c.take != nil:
		out, err := s.Take(e.Context(), store.Take{Debits: debits(c.take)})
		return answer{out.Allowed, out.At, out.Levels}, err
	case c.settle != nil:
		out, err := s.Settle(e.Context(), store.Settle{Debits: debits(c.settle)})
		return answer{out.Allowed, out.At, nil}, err
	default:
		snap, err := s.Peek(e.Context(), names[c.peek])
		a := answer{at: snap.At}
		if err != nil {
			return a, err
		}
		for _, l := range linearLimits {
			lv := store.Level{Limit: l, Level: never}
			if m := find(snap.States[0], l); m != nil {
				lv.Level = m.Level
			}
			a.levels = append(a.levels, lv)
		}
		return a, nil
	}
}

// step is the model: whether the call may give the answer in this state, and the state after it.
func (s levels) step(c call, a answer) (bool, levels) {
	var clocks [len(linearLimits)]int64
	for i, l := range linearLimits {
		clocks[i] = reading(l, a.at)
	}
	shows := func(lv store.Level, b, i int) bool {
		return max(0, lv.Level-clocks[i]) == max(0, s[b][i]-clocks[i])
	}
	if c.take == nil && c.settle == nil {
		for i, lv := range a.levels {
			if !shows(lv, c.peek, i) {
				return false, s
			}
		}
		return true, s
	}
	for _, d := range c.settle {
		for i, n := range d.amounts {
			switch lv := &s[d.bucket][i]; {
			case n > 0:
				*lv = max(*lv, clocks[i]) + n
			case *lv != never:
				*lv += n
			}
		}
	}
	if c.take == nil {
		return true, s
	}
	allowed := true
	before := s
	for _, d := range c.take {
		for i, n := range d.amounts {
			lv := max(s[d.bucket][i], clocks[i]) + n
			allowed = allowed && (d.force[i] || lv <= clocks[i]+linearLimits[i].Burst)
			s[d.bucket][i] = lv
		}
	}
	if allowed != a.allowed {
		return false, before
	}
	if !allowed {
		s = before
	}
	if len(a.levels) != len(c.take)*len(linearLimits) {
		return false, before
	}
	for j, d := range c.take {
		for i := range linearLimits {
			lv := a.levels[j*len(linearLimits)+i]
			if !shows(lv, d.bucket, i) {
				return false, before
			}
			// A debit of 0 need not lift a level to the clock, which a process whose time is behind gets to see.
			if s := &s[d.bucket][i]; allowed && d.amounts[i] == 0 {
				*s = min(*s, max(before[d.bucket][i], lv.Level))
			}
		}
	}
	return true, s
}

func linearModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			var s levels
			for b := range s {
				for i := range s[b] {
					s[b][i] = never
				}
			}
			return s
		},
		Step: func(state, input, output any) (bool, any) {
			s, c, a := state.(levels), input.(call), output.(answer)
			ok, next := s.step(c, a)
			return ok, next
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %v", input, output) },
	}
}

// checkLinear returns an error if there is no order that explains the answers, and then leaves a drawing in dir.
func checkLinear(ops []porcupine.Operation, dir func() string) error {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	model := linearModel()
	result, info := porcupine.CheckOperationsVerbose(model, ops, 20*time.Second)
	if result != porcupine.Illegal {
		return nil // where the search takes too long there was much to choose from; there are other rounds
	}
	path := filepath.Join(dir(), "history.html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		path = err.Error()
	}
	return fmt.Errorf("the answers are in no order that the model could give; see %s", path)
}

func (c call) String() string {
	show := func(verb string, debits []linearDebit) string {
		var b strings.Builder
		b.WriteString(verb)
		for _, d := range debits {
			fmt.Fprintf(&b, " %d:", d.bucket)
			for i, n := range d.amounts {
				fmt.Fprintf(&b, " %d", n)
				if d.force[i] {
					b.WriteString("!")
				}
			}
		}
		return b.String()
	}
	switch {
	case c.take != nil:
		return show("take", c.take)
	case c.settle != nil:
		return show("settle", c.settle)
	}
	return fmt.Sprint("peek ", c.peek)
}

func (a answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%t at %s", a.allowed, a.at.Format("05.000000000"))
	for _, l := range a.levels {
		fmt.Fprintf(&b, " %d", room(l.Limit, l.Level, a.at))
	}
	return b.String()
}
