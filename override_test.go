package weir_test

import (
	"fmt"
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

// The entity's limits are not read; its parents are charged under their own limits.
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
	_, _, keys := fresh.fake.counts()
	for _, k := range keys {
		if k.ID == "alice" && k.Kind == store.KindEntityLimits {
			t.Errorf("read %v", k)
		}
	}
	if len(keys) == 0 {
		t.Error("read nothing")
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
