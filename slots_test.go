package weir_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	weirclock "github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store/memory"
)

var alice = weir.Request{Entity: "alice", Resource: "api"}

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := limiterOn(t, memory.New(nil))
		ctx := t.Context()
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, parsed(t, "parallel:2slots"), parsed(t, "tpm:1000/min")))
		req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 100}}
		a, err := lim.Acquire(ctx, req)
		must(t, err)
		b, err := lim.Acquire(ctx, req)
		must(t, err)
		over := refused(t, lim, req)
		if s := over.Statuses[0]; over.RetryAfter != time.Second || !s.Estimated || s.Requested != 1 || s.Available != 0 {
			t.Errorf("%+v", over)
		}
		if got := b.Slots()["parallel"]; got != 1 {
			t.Errorf("the lease holds %d slots", got)
		}
		time.Sleep(5 * time.Second)
		must(t, a.Close(ctx))
		must(t, a.Close(ctx))
		must(t, a.Commit(ctx))
		if a.Context().Err() == nil {
			t.Error("a lease has ended, but not its context")
		}
		c, err := lim.Acquire(ctx, req)
		must(t, err)
		if over := refused(t, lim, req); over.RetryAfter != 5*time.Second {
			t.Errorf("retry after %v although slots were held for 5 s", over.RetryAfter)
		}
		for range 100 {
			time.Sleep(10 * time.Second)
			refused(t, lim, req)
		}
		must(t, c.Context().Err())
		must(t, b.Rollback(ctx))
		must(t, c.Commit(ctx))
		two := req
		two.Tokens = weir.Tokens{"parallel": 2}
		d, err := lim.Acquire(ctx, two)
		must(t, err)
		refused(t, lim, req)
		_, err = d.Adjust(ctx, weir.Tokens{"parallel": -1})
		must(t, err)
		e, err := lim.Acquire(ctx, req)
		must(t, err)
		refused(t, lim, req)
		var config *weir.ConfigError
		if _, err := d.Adjust(ctx, weir.Tokens{"parallel": 1}); !errors.As(err, &config) {
			t.Errorf("a lease took more slots: %v", err)
		}
		must(t, d.Close(ctx))
		must(t, e.Close(ctx))
		all, err := lim.AcquireAll(ctx, []weir.Request{req, req})
		must(t, err)
		refused(t, lim, req)
		for _, le := range all {
			must(t, le.Close(ctx))
		}
		two.Tokens["parallel"] = 3
		if _, err := lim.Acquire(ctx, two); !errors.Is(err, weir.ErrExceedsBurst) {
			t.Errorf("3 of 2 slots: %v", err)
		}
		must(t, lim.Close())
	})
}

// TestSlotsNextEnd: what is available, and an explanation, show when the next held slots come back unless they are renewed;
// decisions do not.
func TestSlotsNextEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(weirclock.Epoch) + time.Hour) // clocks before it would be far behind
		lim := limiterOn(t, memory.New(nil))
		ctx := t.Context()
		limits := admin.New(lim).Limits
		must(t, limits.Set(ctx, admin.Scope{}, parsed(t, "tpm:5/min"), parsed(t, "parallel:3slots"), parsed(t, "usd:5/day@UTC")))
		ends := func() time.Duration {
			t.Helper()
			can, err := lim.Available(ctx, "alice", "api")
			must(t, err)
			x, err := lim.Explain(ctx, alice)
			must(t, err)
			ends := can.Statuses[1].Ends
			if can.Statuses[0].Ends != 0 || can.Statuses[2].Ends == 0 || x.Chain[0].Limits[1].Status.Ends != ends {
				t.Errorf("%+v, %+v", can, x)
			}
			return ends
		}
		if d := ends(); d != 0 {
			t.Errorf("nothing is held for %v", d)
		}
		le, err := lim.Acquire(ctx, alice)
		must(t, err)
		if s := le.Decision().Statuses; s[1].Ends != 0 || s[2].Ends == 0 {
			t.Errorf("%+v", s)
		}
		d := ends()
		if d < 30*time.Second || d > time.Minute {
			t.Errorf("held for %v", d)
		}
		time.Sleep(time.Second)
		if now := ends(); now != d-time.Second {
			t.Errorf("held for %v, a second later for %v", d, now)
		}
		time.Sleep(d)
		if d := ends(); d <= 0 {
			t.Errorf("renewed for %v", d)
		}
		must(t, le.Close(ctx))
		if d := ends(); d != 0 {
			t.Errorf("what was given back is held for %v", d)
		}
		must(t, lim.Close())
	})
}

func refused(t *testing.T, lim *weir.Limiter, req weir.Request) *weir.ExceededError {
	t.Helper()
	_, err := lim.Acquire(t.Context(), req)
	over, ok := errors.AsType[*weir.ExceededError](err)
	if !ok {
		t.Fatalf("not refused: %v", err)
	}
	return over
}

// TestSlotsNeedLease checks the calls that cannot give slots back, and requests with limits of slots of their own.
func TestSlotsNeedLease(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	ctx := t.Context()
	must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, parsed(t, "requests:5slots")))
	for range 10 {
		if _, err := lim.Allow(ctx, "alice", "api"); !errors.Is(err, weir.ErrSlotsNeedLease) || weir.CodeOf(err) != weir.CodeInvalid {
			t.Fatal(err)
		}
	}
	var config *weir.ConfigError
	own := alice
	own.Limits = []weir.Limit{parsed(t, "parallel:5slots")}
	if _, err := lim.Acquire(ctx, own); !errors.As(err, &config) {
		t.Errorf("a request brought slots: %v", err)
	}
	booked := alice
	booked.Tokens = weir.Tokens{"requests": 1}
	if _, err := lim.Adjust(ctx, booked); !errors.As(err, &config) {
		t.Errorf("slots were taken without a lease: %v", err)
	}
	can, err := lim.Available(ctx, "alice", "api")
	must(t, err)
	if ok, err := can.Fits(nil); !ok || err != nil || can.Statuses[0].Available != 5 {
		t.Error(can, err)
	}
	must(t, lim.Close())
}

// TestSlotsNoneInShadow checks that a request passes that takes none of the slots of a limit in shadow.
func TestSlotsNoneInShadow(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	shadow := parsed(t, "parallel:1slots").WithEnforce(weir.EnforceShadow)
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, shadow, parsed(t, "tpm:1000/min")))
	for _, slots := range []int64{1, 0} {
		req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"parallel": slots, "tpm": 1}}
		if _, err := lim.Acquire(t.Context(), req); err != nil {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
	must(t, lim.Close())
}

// TestSlotsOneWrite checks that a held request that settles makes two writes, and that commits without slots make none.
func TestSlotsOneWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lims, lines := fleet(t, 1, weir.OnUnavailableDeny, "parallel:2slots", "tpm:1000/min")
		ctx := t.Context()
		req := alice
		req.Tokens = weir.Tokens{"tpm": 500}
		lease, err := lims[0].Acquire(ctx, req)
		must(t, err)
		_, err = lease.Settle(ctx, weir.Tokens{"tpm": -400})
		must(t, err)
		must(t, lease.Commit(ctx))
		if _, err := lease.Settle(ctx, nil); !errors.Is(err, weir.ErrCommitted) {
			t.Error(err)
		}
		if got := lines[0].settles; len(got) != 1 || len(got[0].Debits[0].Charges) != 2 {
			t.Errorf("%+v", got)
		}
		can, err := lims[0].Available(ctx, "alice", "api")
		must(t, err)
		for _, s := range can.Statuses {
			if want := map[string]int64{"parallel": 2, "tpm": 900}[s.Limit]; s.Available != want {
				t.Errorf("%d %s are available, want %d", s.Available, s.Limit, want)
			}
		}
		req.Tokens = weir.Tokens{"parallel": 0, "tpm": 1}
		lease, err = lims[0].Acquire(ctx, req)
		must(t, err)
		must(t, lease.Close(ctx))
		if len(lines[0].settles) != 1 {
			t.Error("a lease without slots wrote")
		}
		closeAll(t, lims)
	})
}

// TestSlotsRenewal checks that a process renews its slots of a limit with one write in each heal time, that it renews
// none of short requests, and that no lease loses its slot.
func TestSlotsRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const heal, times = 30 * time.Second, 40
		lims, lines := fleet(t, 2, weir.OnUnavailableDeny, "parallel:100slots")
		ctx := t.Context()
		var leases []*weir.Lease
		for i := range 60 {
			time.Sleep(700 * time.Millisecond)
			lease, err := lims[i%2].Acquire(ctx, alice)
			must(t, err)
			leases = append(leases, lease)
			if i%3 == 0 {
				lease.Context()
			}
		}
		from := [2]int{lines[0].renewed("alice"), lines[1].renewed("alice")}
		for range times * 30 {
			short, err := lims[0].Acquire(ctx, weir.Request{Entity: "bob", Resource: "api"})
			must(t, err)
			time.Sleep(heal / 30)
			must(t, short.Close(ctx))
		}
		for i, l := range lines {
			if n := l.renewed("alice") - from[i]; n < times-1 || n > times+1 {
				t.Errorf("process %d renewed %d times in %d heal times", i, n, times)
			}
		}
		if n := lines[0].renewed("bob"); n > 0 {
			t.Errorf("short requests were renewed %d times", n)
		}
		for _, lease := range leases {
			must(t, lease.Context().Err())
			must(t, lease.Close(ctx))
		}
		if got := lines[0].releases + lines[1].releases; got != 60+times*30 {
			t.Errorf("%d releases", got)
		}
		full := alice
		full.Tokens = weir.Tokens{"parallel": 100}
		_, err := lims[0].Acquire(ctx, full)
		must(t, err)
		closeAll(t, lims)
	})
}

// BenchmarkSlots compares a slot that is taken and given back with tokens.
func BenchmarkSlots(b *testing.B) {
	for name, text := range map[string]string{"tokens": "rps:1M/s:1000000M", "slots": "parallel:10slots"} {
		b.Run(name, func(b *testing.B) {
			lim := limiterOn(b, memory.New(nil))
			must(b, admin.New(lim).Limits.Set(b.Context(), admin.Scope{}, parsed(b, text)))
			req := alice
			req.Requests = 0
			if name == "tokens" {
				req.Tokens = weir.Tokens{"rps": 1}
			}
			for ctx := b.Context(); b.Loop(); {
				lease, err := lim.Acquire(ctx, req)
				if err == nil {
					err = lease.Rollback(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestSlotsNone checks that a request that takes no slot, such as a message of a stream that holds one, is not refused when
// more is held than the limit now allows.
func TestSlotsNone(t *testing.T) {
	t.Parallel()
	lim := limiterOn(t, memory.New(nil))
	ctx, limits := t.Context(), admin.New(lim).Limits
	must(t, limits.Set(ctx, admin.Scope{}, parsed(t, "parallel:2slots"), parsed(t, "rpm:3/min")))
	one := alice
	one.Tokens = weir.Tokens{"rpm": 1}
	for range 2 {
		_, err := lim.Acquire(ctx, one)
		must(t, err)
	}
	must(t, limits.Set(ctx, admin.Scope{}, parsed(t, "parallel:1slots"), parsed(t, "rpm:3/min")))
	one.Tokens = weir.Tokens{"rpm": 1, "parallel": 0}
	none, err := lim.Acquire(ctx, one)
	must(t, err)
	if none.Slots() != nil {
		t.Error(none.Slots())
	}
	refused(t, lim, one) // by the rate
	must(t, lim.Close())
}
