package weir_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

func with(limits ...weir.Limit) func(weir.Tokens) weir.Request {
	return func(tokens weir.Tokens) weir.Request {
		return weir.Request{Entity: "alice", Resource: "api", Tokens: tokens, Limits: limits}
	}
}

// Calls that pass an equal limit share its state. Different limits, and the entity's own, do not affect each other.
func TestOverrideState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("alice", "", weir.PerMinute("rpm", 5))
	one := weir.Tokens{"rpm": 1}
	small, large := with(weir.PerMinute("rpm", 2)), with(weir.PerMinute("rpm", 100))
	sameName := with(weir.PerMinute("rpm", 2).WithBurst(3)) // another burst makes another limit
	b.takeFor(small(one))
	b.takeFor(small(one))
	over := b.refusedFor(small(one))
	if s := over.Statuses; len(s) != 1 || s[0].Source != weir.SourceRequest || s[0].Burst != 2 || over.RetryAfter != 30*time.Second {
		t.Errorf("%+v", over)
	}
	b.takeFor(large(weir.Tokens{"rpm": 100}))
	b.refusedFor(large(one))
	b.takeFor(sameName(weir.Tokens{"rpm": 3}))
	b.wantLeft("alice", weir.Tokens{"rpm": 5})
	b.take("alice", weir.Tokens{"rpm": 5})
	b.refusedFor(small(one)) // its state has survived all of that
	b.clock.advance(30 * time.Second)
	b.takeFor(small(one))
	b.refusedFor(small(one))

	// Two requests in one call: the same bucket, all or nothing.
	two := with(weir.PerMinute("rpm", 2), weir.PerMinute("tpm", 10))
	b.refusedFor(two(weir.Tokens{"rpm": 1, "tpm": 1}))
	b.takeFor(two(weir.Tokens{"tpm": 10}))
}

func TestOverrideAppliesToLiveBuckets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("alice", "", weir.PerMinute("rpm", 1))
	b.take("alice", weir.Tokens{"rpm": 1})
	b.refused("alice", weir.Tokens{"rpm": 1})
	b.takeFor(with(weir.PerMinute("rpm", 9))(weir.Tokens{"rpm": 9}))
}

func TestOverrideIsNotStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.takeFor(with(weir.PerMinute("rpm", 2))(weir.Tokens{"rpm": 1})) // no limits are set anywhere, and none are needed
	_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	wantErr(t, err, weir.ErrNoLimits)
	for _, kind := range store.Kinds {
		if page, err := b.fake.List(b.ctx, store.Query{Namespace: "default", Kind: kind}); err != nil || len(page.Records) > 0 {
			t.Errorf("%s: %v, %v", kind, page.Records, err)
		}
	}
}

// The parents of an entity are charged under their own limits.
func TestOverrideAndParents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("alice", "team")
	b.set("alice", "api", weir.PerMinute("rpm", 1))
	b.set("team", "", weir.PerMinute("rpm", 50))
	fresh := b.peer()
	req := with(weir.PerMinute("rpm", 100))(weir.Tokens{"rpm": 30})
	d := fresh.takeFor(req).Decision()
	if len(d.Statuses) != 2 || d.Statuses[0].Burst != 100 || d.Statuses[1].Burst != 50 || d.Statuses[1].Source != weir.SourceEntityDefault {
		t.Errorf("%+v", d.Statuses)
	}
	fresh.wantLeft("team", weir.Tokens{"rpm": 20})
	fresh.wantLeft("alice", weir.Tokens{"rpm": 1})
	over := fresh.refusedFor(req)
	if over.Statuses[0].Refused || !over.Statuses[1].Refused {
		t.Errorf("%+v", over.Statuses)
	}
	fresh.takeFor(with(weir.PerMinute("rpm", 100))(weir.Tokens{"rpm": 20})) // the refused request debited nothing from the override
}

func TestTooManyOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("alice", "", weir.PerMinute("rpm", 1))
	req := func(i int) weir.Request { return with(weir.PerMinute("rpm", int64(100+i)))(weir.Tokens{"rpm": 100}) }
	for i := range store.MaxOverrides {
		b.takeFor(req(i))
	}
	_, err := b.Acquire(b.ctx, req(16))
	wantConfigError(t, err, "limits")
	_, err = b.Wait(b.ctx, req(16))
	wantConfigError(t, err, "limits")
	r := req(16)
	r.OnUnavailable = weir.OnUnavailableAllow // a caller's mistake is not a store failure
	_, err = b.Acquire(b.ctx, r)
	wantConfigError(t, err, "limits")
	b.take("alice", weir.Tokens{"rpm": 1})
	b.clock.advance(time.Minute) // all are full again
	b.takeFor(req(16))
	b.refusedFor(req(16))
}

// TestQuotaOverrides: a request's own limit may be a quota, whose refusal shows when the window ends.
func TestQuotaOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := with(quota(t, "usd", 10, "month@Europe/Berlin"))
	b.takeFor(req(weir.Tokens{"usd": 10}))
	over := b.refusedFor(req(weir.Tokens{"usd": 1}))
	st := over.Statuses[0]
	end := over.At.Add(st.Ends).In(st.Window.Zone())
	if over.RetryAfter != st.Ends || end.Day() != 1 || end.Hour() != 0 {
		t.Errorf("retry after %v, the window ends at %v and began %v ago", over.RetryAfter, end, st.Began)
	}
	b.takeFor(with(quota(t, "usd", 10, "month@UTC"))(weir.Tokens{"usd": 10}))
}

// TestBalanceRefuses: a refusal by a balance has no time to retry.
func TestBalanceRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("alice", "api", weir.Limit{Name: "credits", Balance: true})
	over := b.refused("alice", weir.Tokens{"credits": 5})
	const want = "limit exceeded: credits of alice on api has 0 available, 5 requested; waiting does not help until it is topped up"
	if over.RetryAfter != math.MaxInt64 || over.Error() != want {
		t.Errorf("got %v, %v", over.RetryAfter, over)
	}
	x, err := b.Explain(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"credits": 5}})
	if err != nil || !errors.Is(x.Err, weir.ErrExceeded) {
		t.Fatalf("got %v, %v", x.Err, err)
	}
	if _, l := x.Binding(); l == nil || l.Never() || l.Used() != 0 {
		t.Errorf("got %+v", l)
	}
	av, err := b.Available(b.ctx, "alice", "api")
	must(t, err)
	if fits, err := av.Fits(weir.Tokens{"credits": 5}); fits || err != nil {
		t.Errorf("got %t, %v", fits, err)
	}
}

func TestBadOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many := make([]weir.Limit, 65)
	for i := range many {
		many[i] = weir.PerMinute(fmt.Sprint("l", i), 1)
	}
	for field, limits := range map[string][]weir.Limit{
		"limit rpm: amount": {weir.PerMinute("rpm", 0)},
		"limit rpm: period": {{Name: "rpm", Amount: 1}},
		"limit rpm: burst":  {weir.PerMinute("rpm", 1).WithBurst(-1)},
		"limit name":        {weir.PerMinute("", 1)},
		"limit usd":         {{Name: "usd", Balance: true}},
		"limit usd: burst":  {quota(t, "usd", 5, "month@UTC").WithBurst(9)},
		"limits":            {weir.PerMinute("rpm", 1), weir.PerMinute("rpm", 2)},
		"tokens.rpm":        {weir.PerMinute("tpm", 1)},
	} {
		_, err := b.Acquire(b.ctx, with(limits...)(weir.Tokens{"rpm": 1}))
		wantConfigError(t, err, field)
	}
	_, err := b.Acquire(b.ctx, with(many...)(nil))
	wantConfigError(t, err, "limits")
	_, err = b.Acquire(b.ctx, with(weir.PerMinute("rpm", 1))(weir.Tokens{"rpm": 2}))
	wantErr(t, err, weir.ErrExceedsBurst)
	if _, takes, _ := b.fake.counts(); takes != 0 {
		t.Errorf("the store was asked %d times", takes)
	}
}

// TestExplainOverrides checks that each overriding limit of a name is explained by what was spent of it alone.
func TestExplainOverrides(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := func(n int64) weir.Request {
		return weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 5}, Limits: []weir.Limit{weir.PerMinute("rpm", n)}}
	}
	must1(b.Acquire(b.ctx, req(10)))
	must1(b.Acquire(b.ctx, req(30)))
	for n, want := range map[int64]int64{10: 5, 20: 20, 30: 25} {
		if x := must1(b.Explain(b.ctx, req(n))); x.Chain[0].Limits[0].Status.Available != want {
			t.Errorf("%d of %d available, want %d", x.Chain[0].Limits[0].Status.Available, n, want)
		}
	}
}
