package slots

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

// lease is what a holder was told.
type lease struct {
	limit *store.Limit // of the take
	slots int64
	hold  *store.Hold
	until time.Time // it may use the slots before then
}

// world is a bucket, those who hold slots of it, and what they were told.
type world struct {
	*Env

	rand    *rand.Rand
	clients []store.Store
	now     time.Time // true time
	clocks  []*Clock
	apart   bool // each clock is up to the skew from true time
	bucket  store.Bucket
	limit   *store.Limit
	rate    *store.Limit
	epoch   uint64
	longest time.Duration // heal time so far
	leases  []*lease
}

// random lets holders take, renew, give back, crash and miss answers, while limits change and buckets are reset.
func random(e *Env, clients ...store.Store) {
	(&world{Env: e, clients: clients, now: e.Clock.Now(), clocks: []*Clock{e.Clock}}).run()
}

// apart is random for two clients whose clocks differ, and jump.
func apart(e *Env) {
	other := *e
	other.Clock = NewClock(e.Clock.Now())
	(&world{
		Env: e, clients: []store.Store{e.Store, other.Peer().Store}, now: e.Clock.Now(),
		clocks: []*Clock{e.Clock, other.Clock}, apart: true,
	}).run()
}

func (w *world) run() {
	e := w.Env
	for seed := range uint64(e.Some(100)) {
		w.rand, w.rate, w.leases = rand.New(rand.NewPCG(seed, 2)), Still("rpm", 1_000_000), nil
		w.bucket, w.longest = Bucket(fmt.Sprint("w", seed), "api"), 0
		w.change()
		for range 100 {
			w.step()
			if e.Failed() {
				e.Fatalf("world %d", seed)
			}
		}
		w.rest()
	}
}

func (w *world) change() {
	heals := []time.Duration{16 * time.Second, 17 * time.Second, 30 * time.Second, 5 * time.Minute}
	w.epoch++
	w.limit = store.Slots("parallel", (1+w.rand.Int64N(8))*Token, heals[w.rand.IntN(len(heals))])
	w.longest = max(w.longest, w.limit.Heal)
}

func (w *world) step() {
	switch w.rand.IntN(6) {
	case 2: // to where clocks disagree about what is dead
		if len(w.leases) > 0 {
			end := w.leases[w.rand.IntN(len(w.leases))].hold.End
			w.pass(max(0, end.Add(time.Duration(w.rand.Int64N(int64(2*skew)))-skew).Sub(w.now)))
		}
	case 0:
		w.pass(time.Duration(w.rand.Int64N(int64(time.Second))))
	case 1:
		w.pass(time.Duration(w.rand.Int64N(int64(w.limit.Heal / 4))))
	}
	switch n := w.rand.IntN(100); {
	case n == 0:
		w.change()
	case n == 1:
		w.Forget(w.bucket)
	case n == 2 && len(w.leases) > 0: // a holder is gone
		w.leases = w.leases[1:]
	case n < 50:
		w.take()
	case n < 75:
		w.renew()
	default:
		w.giveBack()
	}
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for _, c := range w.clocks {
		off := c.Now().Sub(w.now)
		if w.apart && w.rand.IntN(4) == 0 {
			off = []time.Duration{-skew, skew, time.Duration(w.rand.Int64N(int64(skew)))}[w.rand.IntN(3)]
		}
		c.Set(w.now.Add(d + off))
	}
	w.now = w.now.Add(d)
}

// client returns a store to call.
func (w *world) client() store.Store { return w.clients[w.rand.IntN(len(w.clients))] }

// lost reports whether an answer is lost.
func (w *world) lost() bool { return w.rand.IntN(12) == 0 }

func (w *world) take() {
	n, tokens := 1+w.rand.Int64N(3), 1+w.rand.Int64N(8)/7*1_000_000 // some are refused by the rate
	sent := w.now
	out, err := w.client().Take(w.Context(), store.Take{Debits: []store.Debit{
		At(w.epoch, Debit(w.bucket, Charge(w.rate, tokens), Charge(w.limit, n))),
	}})
	if err != nil {
		w.Fatalf("take: %v", err)
	}
	if !out.Allowed {
		return
	}
	valid := n
	for _, l := range w.leases {
		if l.until.After(sent) {
			valid += l.slots
		}
	}
	if valid*Token > w.limit.Burst {
		w.Errorf("I7: %d slots of %d are valid", valid, w.limit.Burst/Token)
	}
	if !w.lost() {
		h := out.Levels[1].Hold
		w.leases = append(w.leases, &lease{w.limit, n, h, sent.Add(h.Valid)})
	}
}

// renew renews most leases, valid or not.
func (w *world) renew() {
	for _, l := range w.leases {
		if w.rand.IntN(4) == 0 {
			continue
		}
		sent := w.now
		out, err := w.client().Settle(w.Context(), store.Settle{Debits: []store.Debit{
			Debit(w.bucket, Renew(l.limit, l.slots, l.hold)),
		}})
		if err != nil {
			w.Fatalf("settle: %v", err)
		}
		switch level := out.Levels[0]; {
		case level.Refused && l.until.After(sent.Add(2*skew)):
			w.Errorf("I9: a lease that is valid for %v was cut", l.until.Sub(sent))
		case !level.Refused && !w.lost():
			l.hold, l.until = level.Hold, sent.Add(level.Hold.Valid)
		}
	}
}

func (w *world) giveBack() {
	if len(w.leases) == 0 {
		return
	}
	i := w.rand.IntN(len(w.leases))
	l := w.leases[i]
	w.leases = append(w.leases[:i], w.leases[i+1:]...)
	if w.lost() {
		return
	}
	s := store.Settle{Debits: []store.Debit{Debit(w.bucket, Charge(w.rate, -1), GiveBack(l.limit, l.slots, l.hold))}}
	if _, err := w.client().Settle(w.Context(), s); err != nil {
		w.Fatalf("settle: %v", err)
	}
}

// rest checks I8.
func (w *world) rest() {
	w.pass(2*w.longest + 2*skew)
	w.Allow(At(w.epoch, Debit(w.bucket, Charge(w.rate, 0), Charge(w.limit, w.limit.Burst/Token))))
}
