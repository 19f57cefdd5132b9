package redis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/clock/slots"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

const heal = 30 * time.Second

// parallel returns a limit of slots.
func parallel(n int64) *store.Limit { return store.Slots("parallel", n*1000, heal) }

// The scripts' arithmetic of slots equals that of package slots, for any heal time and any cohorts.
func TestSlotsParity(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Config{Address: "redis://" + shared(t).Addr, Prefix: prefix(), CallTimeout: 10 * time.Second})
	amounts := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, clock.MaxBurst))
	rapid.Check(t, func(rt *rapid.T) {
		ops := make([]redis.SlotsOp, 200)
		for i := range ops {
			o := &ops[i]
			o.Heal = rapid.OneOf(
				rapid.Int64Range(int64(slots.MinHeal), int64(slots.MaxHeal)),
				rapid.SampledFrom([]int64{int64(slots.MinHeal), int64(heal), int64(slots.MaxHeal)}),
			).Draw(rt, "heal")
			o.Now = rapid.OneOf(rapid.Int64Range(-1<<60, 1<<60), rapid.Int64Range(1<<56, 1<<57)).Draw(rt, "now")
			if rapid.Bool().Draw(rt, "on the grid") {
				o.Now += int64(redis.Skew) - o.Now%o.Heal + rapid.Int64Range(-1, 1).Draw(rt, "beside")
			}
			near := func(name string) int64 {
				return o.Now + rapid.OneOf(
					rapid.SampledFrom([]int64{-int64(redis.Skew), 0, int64(redis.Skew)}), rapid.Int64Range(-2*o.Heal, 2*o.Heal),
				).Draw(rt, name) + rapid.Int64Range(-1, 1).Draw(rt, name+" beside")
			}
			o.Held = slots.Held{
				Cur: amounts.Draw(rt, "cur"), End: near("end"), Prev: amounts.Draw(rt, "prev"), PrevEnd: near("previous end"),
			}
			if o.K, o.End = amounts.Draw(rt, "k"), near("of the lease"); rapid.Bool().Draw(rt, "current") {
				o.End = o.Held.End
			}
			o.What = rapid.SampledFrom([]string{"take", "renew", "release"}).Draw(rt, "what")
		}
		got, err := s.Slots(t.Context(), ops)
		if err != nil {
			rt.Fatal(err)
		}
		for i, o := range ops {
			l := slots.Limit{Heal: o.Heal, Skew: int64(redis.Skew)}
			want, ok := l.Force(o.Held, o.Now, o.K), true
			switch o.What {
			case "renew":
				want, ok = l.Renew(o.Held, o.Now, o.K, o.End)
			case "release":
				want = l.Release(o.Held, o.Now, o.K, o.End)
			}
			if l.Ahead(o.Held, o.Now) { // cannot be: see slots.lua
				continue
			}
			if got[i].Held != want || got[i].Ok != ok {
				rt.Fatalf("%+v: %+v, want %+v, %t", o, got[i], want, ok)
			}
		}
	})
}

// Earlier versions of weir refuse a bucket while it has slots, by its first byte. What they wrote stays.
func TestSlotsVersion(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-15T12:00:00Z")
	usd := quota(t, "rpm", 9, "day@UTC")
	for i, c := range []struct {
		charges []store.Charge
		want    string
	}{
		{[]store.Charge{{Limit: still(100), Amount: 60_000}}, "\x01"},
		{[]store.Charge{{Limit: still(100)}, {Limit: parallel(2), Amount: 1000}}, "\x03"},
		{[]store.Charge{{Limit: usd}, {Limit: parallel(2), Amount: 1000}}, "\x03"},
		{[]store.Charge{{Limit: usd}}, "\x03"}, // two are held
	} {
		d := one("a", nil, 0)
		d.Charges, d.Epoch = c.charges, uint64(i)
		if ok, _ := q.take(d); !ok {
			t.Errorf("%d: refused", i)
		}
		if got := q.server.do(t, "GETRANGE", q.s.Key(d.Bucket), "0", "0"); got != c.want {
			t.Errorf("%d: version %q, want %q", i, got, c.want)
		}
	}
	snap, err := q.s.Peek(t.Context(), one("a", nil, 0).Bucket)
	if err != nil || len(snap.States[0].Limits) != 2 || snap.States[0].Limits[1].Level != 2000 {
		t.Errorf("%+v, %v: want two held", snap.States[0].Limits, err)
	}
}

// Slots of a valid lease are not given to others if the server's clock jumps forward by up to 4 s, as it may when
// another server takes over.
func TestSlotsClockJumps(t *testing.T) {
	t.Parallel()
	q := newQuotas(t, "2026-11-15T12:00:07Z")
	d := one("a", parallel(1), 1)
	out, err := q.s.Take(t.Context(), store.Take{Debits: []store.Debit{d}})
	if err != nil || !out.Allowed || out.Levels[0].Hold == nil {
		t.Fatalf("%+v, %v", out, err)
	}
	valid := out.Levels[0].Hold.Valid
	if valid < heal-2*redis.Skew || valid > 2*(heal-redis.Skew) {
		t.Errorf("valid for %v", valid)
	}
	q.clock.Advance(valid - 1 + 2*redis.Skew)
	if ok, _ := q.take(d); ok {
		t.Error("taken while the lease is valid")
	}
	q.clock.Advance(1)
	if ok, _ := q.take(d); !ok {
		t.Error("still held")
	}
}

// taker takes slots from a server that can be stopped.
type taker struct {
	*testing.T
	server server
	clock  *storetest.Clock
	s      *redis.Store
}

func newTaker(t *testing.T, timeout time.Duration) *taker {
	t.Helper()
	if stopped == cont {
		t.Skip("processes cannot be stopped here")
	}
	s, fake := start(t), storetest.NewClock(clock.Time(1<<56))
	return &taker{t, s, fake, open(t, redis.Config{
		Address: "redis://" + s.Addr, Now: fake.Now, CallTimeout: timeout, Connections: 1,
	})}
}

func (k *taker) take(ctx context.Context, l *store.Limit) (store.Outcome, error) {
	return k.s.Take(ctx, store.Take{Debits: []store.Debit{one("parent", still(1e6), 1), one("a", l, 1)}})
}

// late makes a take whose caller leaves before the server answers.
func (k *taker) late(l *store.Limit) {
	k.Helper()
	if err := k.server.Signal(stopped); err != nil {
		k.Fatal(err)
	}
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	left := make(chan error)
	go func() {
		_, err := k.take(ctx, l)
		left <- err
	}()
	queue(k.T, k.s, 1, 0)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		k.Fatalf("error %v", err)
	}
	if err := k.server.Signal(cont); err != nil {
		k.Fatal(err)
	}
}

// held waits until so many slots are held.
func (k *taker) held(n int64) {
	k.Helper()
	eventually(k, fmt.Sprint(n, " are held"), func() bool {
		snap, err := k.s.Peek(k.Context(), one("a", nil, 0).Bucket)
		return err == nil && len(snap.States[0].Limits) == 1 && snap.States[0].Limits[0].Level == n*1000
	})
}

// 100 callers a second use 10 of 20 slots, and one in a hundred leaves before it is answered. Its slot comes back at
// once: at most 1 % of the others are refused.
func TestSlotsLateAnswers(t *testing.T) {
	t.Parallel()
	k := newTaker(t, time.Minute)
	l, refused := parallel(20), 0
	const calls = 4000
	var holds []*store.Hold
	for i := range calls {
		k.clock.Advance(10 * time.Millisecond)
		if i%100 == 50 {
			k.late(l)
			queue(t, k.s, 0, 0)
			continue
		}
		out, err := k.take(t.Context(), l)
		switch {
		case err != nil:
			t.Fatal(err)
		case out.Allowed:
			holds = append(holds, out.Levels[1].Hold)
		default:
			refused++
		}
		if len(holds) > 10 {
			d := one("a", l, -1)
			d.Charges[0].Hold, holds = holds[0], holds[1:]
			if _, err := k.s.Settle(t.Context(), store.Settle{Debits: []store.Debit{d}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d of %d were refused", refused, calls)
	if refused > calls/100 {
		t.Errorf("%d of %d were refused", refused, calls)
	}
	k.held(10)
}

// What a take is answered after the call timeout comes back, too.
func TestSlotsLateTimeout(t *testing.T) {
	t.Parallel()
	k := newTaker(t, 300*time.Millisecond)
	l := parallel(2)
	if out, err := k.take(t.Context(), l); err != nil || !out.Allowed {
		t.Fatalf("%+v, %v", out, err)
	}
	if err := k.server.Signal(stopped); err != nil {
		t.Fatal(err)
	}
	if _, err := k.take(t.Context(), l); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if err := k.server.Signal(cont); err != nil {
		t.Fatal(err)
	}
	var takes int64
	eventually(t, "the take has been made", func() bool {
		snap, err := k.s.Peek(t.Context(), one("parent", nil, 0).Bucket)
		if err == nil {
			takes = snap.States[0].Takes
		}
		return takes == 2
	})
	k.held(1)
}

// report is what a process holds, and until when.
type report struct {
	Leases []leased
	Failed string
}

type leased struct {
	Slots int64
	Until time.Time
	hold  *store.Hold
}

// order is what a process is to do, at a time.
type order struct {
	Now  time.Time
	What string
	N    int64
}

// holder is a process that holds slots: it obeys the orders that it reads, and reports what it holds.
type holder struct {
	s      *redis.Store
	limit  *store.Limit
	now    atomic.Pointer[time.Time]
	leases []leased
}

// holderOf is the variable with the server of a process that holds slots.
const holderOf = "WEIR_TEST_HOLDER"

const (
	crashSlots = 8
	crashHeal  = 16 * time.Second
)

func runHolder(address string, in io.Reader, out io.Writer) error {
	h := &holder{limit: store.Slots("parallel", crashSlots*1000, crashHeal)}
	orders, reports := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			return err
		}
		h.now.Store(&o.Now)
		if h.s == nil {
			s, err := redis.Open(context.Background(), redis.Config{
				Address: address, Now: func() time.Time { return *h.now.Load() },
			})
			if err != nil {
				return err
			}
			h.s = s
		}
		r := report{}
		if err := h.obey(o); err != nil {
			r.Failed = err.Error()
		}
		r.Leases = h.leases
		if err := reports.Encode(r); err != nil {
			return err
		}
	}
}

func (h *holder) obey(o order) error {
	switch {
	case o.What == "take":
		out, err := h.s.Take(context.Background(), store.Take{Debits: []store.Debit{one("a", h.limit, o.N)}})
		if err == nil && out.Allowed {
			hold := out.Levels[0].Hold
			h.leases = append(h.leases, leased{o.N, o.Now.Add(hold.Valid), hold})
		}
		return err
	case o.What == "release" && len(h.leases) > 0:
		l := h.leases[0]
		h.leases = h.leases[1:]
		_, err := h.settle(-l.Slots, l.hold)
		return err
	case o.What == "renew":
		kept := h.leases[:0]
		for _, l := range h.leases {
			level, err := h.settle(l.Slots, l.hold)
			if err != nil {
				return err
			}
			if !level.Refused {
				kept = append(kept, leased{l.Slots, o.Now.Add(level.Hold.Valid), level.Hold})
			}
		}
		h.leases = kept
	}
	return nil
}

func (h *holder) settle(n int64, hold *store.Hold) (store.Level, error) {
	d := one("a", h.limit, n)
	d.Charges[0].Hold = hold
	out, err := h.s.Settle(context.Background(), store.Settle{Debits: []store.Debit{d}})
	if err != nil {
		return store.Level{}, err
	}
	return out.Levels[0], nil
}

// process is a holder in a process of its own.
type process struct {
	cmd     *exec.Cmd
	orders  *json.Encoder
	reports *json.Decoder
	leases  []leased
}

func startHolder(t *testing.T, address string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holderOf+"="+address)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, orders: json.NewEncoder(in), reports: json.NewDecoder(out)}
	t.Cleanup(p.kill)
	return p
}

func (p *process) order(t *testing.T, o order) {
	t.Helper()
	if err := p.orders.Encode(o); err != nil {
		t.Fatal(err)
	}
}

// report reads what the process holds after its last order.
func (p *process) report(t *testing.T) {
	t.Helper()
	var r report
	if err := p.reports.Decode(&r); err != nil || r.Failed != "" {
		t.Fatalf("%v %s", err, r.Failed)
	}
	p.leases = r.Leases
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// One of four processes is killed while it holds slots and takes more. Never is more held than the limit allows, and what
// the process held is free 2 T + 2 S later. Time is virtual, processes and the server are real.
func TestSlotsProcessKilled(t *testing.T) {
	t.Parallel()
	s := start(t)
	address := "redis://" + s.Addr
	rnd, now := rand.New(rand.NewPCG(1, 21)), clock.Time(1<<56) //nolint:gosec // the same in each run
	ps := make([]*process, 4)
	for i := range ps {
		ps[i] = startHolder(t, address)
	}
	valid := func() (n int64) {
		for _, p := range ps {
			for _, l := range p.leases {
				if l.Until.After(now) {
					n += l.Slots
				}
			}
		}
		if n > crashSlots {
			t.Fatalf("%d slots are valid", n)
		}
		return n
	}
	live, killed, most := ps, time.Time{}, int64(0)
	for round := range 400 {
		now = now.Add(time.Duration(rnd.Int64N(int64(crashHeal / 4))))
		if round == 200 {
			for len(ps[0].leases) == 0 {
				now = now.Add(time.Second)
				ps[0].order(t, order{now, "take", 1})
				ps[0].report(t)
			}
			ps[0].order(t, order{now, "take", 1}) // nobody learns whether it was made
			ps[0].kill()
			live, killed = ps[1:], now
		}
		for _, p := range live { // all at once
			what := []string{"take", "take", "renew", "release"}[rnd.IntN(4)]
			p.order(t, order{now, what, 1 + rnd.Int64N(3)})
		}
		for _, p := range live {
			p.report(t)
		}
		most = max(most, valid())
	}
	if most < crashSlots {
		t.Errorf("at most %d were held: too few to be worth anything", most)
	}
	for _, p := range live {
		for n := len(p.leases); n > 0; n-- {
			p.order(t, order{now, "release", 0})
			p.report(t)
		}
	}
	if now.Sub(killed) < 2*crashHeal {
		t.Fatal("too early")
	}
	// Now one holds everything when it is killed, and it is measured when that is free. What was given back too late to
	// count is free by then.
	now = now.Add(2 * redis.Skew)
	for range crashSlots {
		ps[1].order(t, order{now, "take", 1})
		ps[1].report(t)
	}
	if n := valid(); n != crashSlots {
		t.Fatalf("%d are held: what the killed process held is not free", n)
	}
	ps[1].kill()
	for killed = now; len(ps[2].leases) == 0 && now.Sub(killed) < time.Hour; {
		now = now.Add(100 * time.Millisecond)
		ps[2].order(t, order{now, "take", crashSlots})
		ps[2].report(t)
		valid()
	}
	t.Logf("all %d free %v after the kill", crashSlots, now.Sub(killed))
	if now.Sub(killed) > 2*crashHeal+2*redis.Skew {
		t.Errorf("free only %v after the kill", now.Sub(killed))
	}
}
