package history

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// The history of concurrent callers is linearizable if the calls can be put into one order in which the model gives the
// same answers and no call precedes one that had returned before it began. A store's answers are rich: they show levels
// and the time. So few orders are possible, and few errors escape.
func linearScenarios() []Scenario {
	hand := Caps{HandClock: true}
	both := Caps{HandClock: true, AtomicTake: true}
	quotas, credits := Caps{HandClock: true, Quotas: true}, Caps{HandClock: true, Credits: true}
	return []Scenario{
		{Name: "one bucket", Need: hand, Run: OnStore(func(e *Env) { linear(e, linearLimits, 1, 1) })},
		{Name: "one bucket from two clients", Need: hand, Peer: true, Run: OnStore(func(e *Env) {
			linear(e, linearLimits, 1, 1, e.Peer().Store)
		})},
		{Name: "buckets one by one", Need: hand, Run: OnStore(func(e *Env) { linear(e, linearLimits, 3, 1) })},
		{Name: "two buckets", Need: both, Run: OnStore(func(e *Env) { linear(e, linearLimits, 2, 2) })},
		{Name: "three buckets", Need: both, Run: OnStore(func(e *Env) { linear(e, linearLimits, 3, 3) })},
		{Name: "a quota", Need: quotas, Run: OnStore(func(e *Env) { linear(e, quotaLimits, 1, 1) })},
		{Name: "a quota from two clients", Need: quotas, Peer: true, Run: OnStore(func(e *Env) {
			linear(e, quotaLimits, 1, 1, e.Peer().Store)
		})},
		{Name: "quotas of three buckets", Need: together(quotas), Run: OnStore(func(e *Env) {
			linear(e, quotaLimits, 3, 3)
		})},
		{Name: "a balance", Need: credits, Run: OnStore(func(e *Env) { linear(e, balanceLimits, 1, 1) })},
		{Name: "a balance from two clients", Need: credits, Peer: true, Run: OnStore(func(e *Env) {
			linear(e, balanceLimits, 1, 1, e.Peer().Store)
		})},
		{Name: "balances of three buckets", Need: together(credits), Run: OnStore(func(e *Env) {
			linear(e, balanceLimits, 3, 3)
		})},
	}
}

// together adds that takes of several buckets are atomic.
func together(c Caps) Caps {
	c.AtomicTake = true
	return c
}

const (
	linearClients = 4
	linearCalls   = 12
)

// The limits of every bucket of a history.
var (
	linearLimits = reckon.Order{
		{Name: "rpm", Amount: 60_000, Period: time.Minute, Burst: 10_000},
		{Name: "tpm", Amount: 700_001, Period: time.Minute, Burst: 100_000},
	}
	quotaLimits   = reckon.Order{Quota("usd", 20, "hour@UTC"), linearLimits[1]}
	balanceLimits = reckon.Order{Balance("credits"), linearLimits[1]}
)

// linear lets a few clients work on a few buckets at once, and then searches for an order that explains the answers.
//
// Each round begins a second before an hour ends.
func linear(e *Env, of reckon.Order, buckets, legs int, peers ...store.Store) {
	e.Helper()
	clients := append([]store.Store{e.Store}, peers...)
	for round := range e.Some(40) {
		e.Clock.Set(e.Clock.Now().Truncate(time.Hour).Add(2*time.Hour - time.Second))
		ops := observe(e, of, clients, fmt.Sprint("round-", round), buckets, legs, uint64(round))
		if e.Failed() {
			return
		}
		if err := checkLinear(of, ops, e.Outer.ArtifactDir); err != nil {
			e.Fatalf("round %d: %v", round, err)
		}
	}
}

func observe(
	e *Env, of reckon.Order, clients []store.Store, namespace string, buckets, legs int, seed uint64,
) []porcupine.Operation {
	names := make([]store.Bucket, buckets)
	for i := range names {
		names[i] = store.Bucket{Namespace: namespace, Entity: fmt.Sprint("entity-", buckets-i), Resource: "api"}
	}
	var (
		mu    sync.Mutex
		ops   []porcupine.Operation
		order atomic.Int64 // orders calls and returns more precisely than a clock
	)
	for b := range names {
		if in := (reckon.Call{Credit: 1000, Peek: b}); reckon.Balance(of[0]) {
			called := order.Add(1)
			out, err := ask(e, of, e.Store, names, in, "first")
			if err != nil {
				e.Fatalf("%v: %v", in, err)
			}
			ops = append(ops, porcupine.Operation{Input: in, Call: called, Output: out, Return: order.Add(1)})
		}
	}
	e.Each(linearClients, func(i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		var seen reckon.Levels // what this caller last saw available: a call at the edge is worth ten at random
		var since time.Time    // of its last take
		for range linearCalls {
			if r.IntN(3) == 0 {
				e.Clock.Advance(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			}
			in := drawCall(r, of, &seen, buckets, legs)
			if len(clients) > 1 && !e.Harness.Caps.AtomicTake {
				in.Settle = single(in.Settle, r)
			}
			in.Since = since
			earliest := e.Clock.Now()
			called := order.Add(1)
			out, err := ask(e, of, clients[i%len(clients)], names, in, fmt.Sprint(called))
			returned := order.Add(1)
			if latest := e.Clock.Now(); err == nil && (out.At.Before(earliest) || out.At.After(latest)) {
				err = fmt.Errorf("decided at %v, called at %v and answered at %v", out.At, earliest, latest)
			}
			if err != nil {
				e.Errorf("%v: %v", in, err)
				return
			}
			if look(in, out, &seen); in.Take != nil && out.Allowed {
				since = out.At
			}
			mu.Lock()
			ops = append(ops, porcupine.Operation{ClientId: i, Input: in, Call: called, Output: out, Return: returned})
			mu.Unlock()
		}
	})
	return ops
}

func drawCall(r *rand.Rand, of reckon.Order, seen *reckon.Levels, buckets, legs int) reckon.Call {
	kind := r.IntN(8)
	if kind == 0 {
		return reckon.Call{Peek: r.IntN(buckets)}
	}
	if reckon.Balance(of[0]) && r.IntN(6) == 0 {
		return reckon.Call{Credit: 1 + r.Int64N(20_000), Peek: r.IntN(buckets)}
	}
	var debits []reckon.Debit
	for _, b := range r.Perm(buckets)[:1+r.IntN(legs)] {
		d := reckon.Debit{Bucket: b}
		for i, l := range of {
			d.Amounts[i] = r.Int64N(min(l.Burst, 100_000) / 2)
			switch r.IntN(6) {
			case 0:
				d.Amounts[i] = 0
			case 1, 2:
				d.Amounts[i] = max(0, seen[b][i]+r.Int64N(2))
			}
			// A bucket that a settle has created gives nothing back to a quota: whether it was full, and forgotten
			// before, does not show.
			if kind <= 2 && (reckon.Quota(l) || r.IntN(4) > 0) {
				d.Amounts[i] = -d.Amounts[i]
			}
			d.Force[i] = kind > 2 && r.IntN(10) == 0
		}
		debits = append(debits, d)
	}
	if kind <= 2 {
		return reckon.Call{Settle: debits}
	}
	return reckon.Call{Take: debits}
}

// single returns a settle's debits with a charge of one limit each. Where other processes write in between, the charges
// of a settle may take effect one by one: a limit that is full when it is first seen is given nothing back.
func single(debits []reckon.Debit, r *rand.Rand) []reckon.Debit {
	for i := range debits {
		a, keep := &debits[i].Amounts, r.IntN(reckon.MaxLimits)
		for k := range a {
			if k != keep {
				a[k] = 0
			}
		}
	}
	return debits
}

// look records the available amounts that the answer to a take shows.
func look(c reckon.Call, a reckon.Answer, seen *reckon.Levels) {
	for j, d := range c.Take {
		for i := range reckon.MaxLimits {
			if k := j*reckon.MaxLimits + i; k < len(a.Levels) {
				seen[d.Bucket][i] = reckon.Room(a.Levels[k].Limit, a.Levels[k].Level, a.At)
			}
		}
	}
}

// ask makes the call.
func ask(
	e *Env, of reckon.Order, s store.Store, names []store.Bucket, c reckon.Call, id string,
) (reckon.Answer, error) {
	debits := func(in []reckon.Debit) (out []store.Debit) {
		for _, d := range in {
			sd := Debit(names[d.Bucket])
			for i, l := range of {
				sd.Charges = append(sd.Charges, store.Charge{Limit: l, Amount: d.Amounts[i], Force: d.Force[i]})
			}
			out = append(out, sd)
		}
		return out
	}
	switch {
	case c.Take != nil:
		out, err := s.Take(e.Context(), store.Take{Debits: debits(c.Take)})
		return reckon.Answer{Allowed: out.Allowed, At: out.At, Levels: out.Levels}, err
	case c.Settle != nil:
		out, err := s.Settle(e.Context(), store.Settle{Debits: debits(c.Settle), Since: c.Since})
		return reckon.Answer{Allowed: out.Allowed, At: out.At}, err
	case c.Credit > 0:
		out, err := s.Credit(e.Context(), store.Credit{
			Bucket: names[c.Peek], Limit: of[0].Name, Amount: c.Credit, ID: id,
		})
		a := reckon.Answer{Allowed: true, At: out.At}
		if e.Harness.Caps.AtomicTake { // otherwise the balance may be read some time after the credit
			a.Levels = []store.Level{{Limit: of[0], Level: out.Level}}
		}
		return a, err
	default:
		snap, err := s.Peek(e.Context(), names[c.Peek])
		a := reckon.Answer{At: snap.At}
		if err != nil {
			return a, err
		}
		for i, l := range of {
			lv := store.Level{Limit: l, Level: of.Start()[c.Peek][i]}
			if m := reckon.Find(snap.States[0], l); m != nil {
				lv.Level = m.Level
			}
			a.Levels = append(a.Levels, lv)
		}
		return a, nil
	}
}

// checkLinear returns an error if no order explains the answers, and then writes a visualization to dir.
func checkLinear(of reckon.Order, ops []porcupine.Operation, dir func() string) error {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	model := of.Model()
	result, info := porcupine.CheckOperationsVerbose(model, ops, 20*time.Second)
	if result != porcupine.Illegal {
		return nil // if the search times out, many orders were possible; other rounds decide
	}
	path := filepath.Join(dir(), "history.html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		path = err.Error()
	}
	return fmt.Errorf("the answers are in no order that the model could give; see %s", path)
}
