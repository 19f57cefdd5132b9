package weir_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// spending records the events of decisions and adjustments, in short form.
type spending struct{ got []string }

func (s *spending) observe(c *weir.Config) {
	c.Observer = &weir.Observer{
		Decided: func(_ context.Context, e weir.DecidedEvent) {
			s.got = append(s.got, fmt.Sprintf("%s %d %v", e.Entity, e.Index, maps.Collect(e.Spent())))
		},
		Adjusted: func(_ context.Context, e weir.AdjustedEvent) {
			s.got = append(s.got, fmt.Sprintf("%s %s %s %v", e.Namespace, e.Entity, e.Resource, maps.Collect(e.Spent())))
		},
	}
}

func (s *spending) want(t *testing.T, want ...string) {
	t.Helper()
	if fmt.Sprint(s.got) != fmt.Sprint(want) {
		t.Errorf("told %q, want %q", s.got, want)
	}
	s.got = nil
}

// TestSpent: observers learn what was spent, once per limit name, and what was returned.
func TestSpent(t *testing.T) {
	t.Parallel()
	var s spending
	b := setup(t, s.observe)
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	b.set("team", "", weir.PerMinute("tpm", 500), weir.PerMinute("gpm", 50))
	for _, e := range []admin.Entity{{ID: "team"}, {ID: "alice", Parent: "team", Cascade: true}} {
		must(t, b.admin.Entities.Create(b.ctx, e))
	}
	lease := b.take("alice", weir.Tokens{"rpm": 2, "tpm": 30, "gpm": 5})
	s.want(t, "alice 0 map[gpm:5 rpm:2 tpm:30]")
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"tpm": 7, "rpm": -1})))
	s.want(t, "default alice api map[rpm:-1 tpm:7]")
	must(t, lease.Rollback(b.ctx))
	s.want(t, "default alice api map[gpm:-5 rpm:-1 tpm:-37]")

	for range 3 { // by lookup, then from the cache
		if ok, err := b.Allow(b.ctx, "bob", "api"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	s.want(t, "bob 0 map[rpm:1]", "bob 0 map[rpm:1]", "bob 0 map[rpm:1]")

	_, err := b.AcquireAll(b.ctx, []weir.Request{{Entity: "bob", Resource: "api", Tokens: weir.Tokens{"rpm": 3}}, {Entity: "carol", Resource: "api"}})
	must(t, err)
	s.want(t, "bob 0 map[rpm:3]", "carol 1 map[]")

	_, err = b.Acquire(b.ctx, weir.Request{Entity: "bob", Resource: "api", Tokens: weir.Tokens{"rpm": 9}})
	wantErr(t, err, weir.ErrExceeded)
	must(t, b.admin.Limits.SetOnUnavailable(b.ctx, admin.Scope{}, weir.OnUnavailableAllow))
	b.fake.does(takeFails(errDown))
	_, err = b.Acquire(b.ctx, weir.Request{Entity: "bob", Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
	must(t, err)
	s.want(t, "bob 0 map[]", "bob 0 map[]") // refused, then admitted without the store
}

// TestSpentQuick: decisions in Allow's quick form are reported too; debits left out by a shadow limit are not.
func TestSpentQuick(t *testing.T) {
	t.Parallel()
	var s spending
	b := setup(t, s.observe)
	b.set("", "", weir.PerMinute("rpm", 2))
	for range 3 {
		if _, err := b.Allow(b.ctx, "bob", "api"); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "bob 0 map[rpm:1]", "bob 0 map[rpm:1]", "bob 0 map[]")

	shadow := weir.PerMinute("spm", 1)
	shadow.Enforce = weir.EnforceShadow
	b.set("carol", "", weir.PerMinute("rpm", 10), shadow)
	b.take("carol", weir.Tokens{"rpm": 1, "spm": 1})
	b.take("carol", weir.Tokens{"rpm": 1, "spm": 1})
	s.want(t, "carol 0 map[rpm:1 spm:1]", "carol 0 map[rpm:1]")
}

// TestSpentElsewhere: the process that settles a held lease reports it.
func TestSpentElsewhere(t *testing.T) {
	t.Parallel()
	var s spending
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10))
	held := b.take("alice", weir.Tokens{"rpm": 2}).Token("x", noon.Add(time.Hour))
	lease, err := b.peer(s.observe).LeaseFromToken(b.ctx, held)
	must(t, err)
	must(t, errOf(lease.Adjust(b.ctx, weir.Tokens{"rpm": 3})))
	s.want(t, "default alice api map[rpm:3]")
}

// TestDebits: the tap receives what each bucket was debited, parents' buckets included, under which share, and what was
// returned.
func TestDebits(t *testing.T) {
	t.Parallel()
	var got []string
	lim := limiterWith(t, &fixed{share: policy.Share{Num: 1, Den: 2, Epoch: 1}}, weir.Config{Store: memory.New(nil)})
	parts.Of(lim).Meter.Tap(func(_ string, debits []store.Debit, num, den int64) {
		var text strings.Builder
		fmt.Fprint(&text, num, "/", den)
		for _, d := range debits {
			for _, c := range d.Charges {
				fmt.Fprint(&text, " ", d.Bucket.Entity, " ", c.Limit.Name, " ", c.Amount, " of ", c.Limit.Burst)
			}
		}
		got = append(got, text.String())
	})
	must(t, admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 10)))
	for _, e := range []admin.Entity{{ID: "team"}, {ID: "alice", Parent: "team", Cascade: true}} {
		must(t, admin.New(lim).Entities.Create(t.Context(), e))
	}
	lease, err := lim.Acquire(t.Context(), weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 3}})
	must(t, err)
	must(t, errOf(lease.Adjust(t.Context(), weir.Tokens{"rpm": -2})))
	for range 5 { // the last one is refused
		_, err = lim.Allow(t.Context(), "alice", "api")
		must(t, err)
	}
	one := "1/2 alice rpm 1000 of 5000 team rpm 1000 of 5000"
	want := []string{
		"1/2 alice rpm 3000 of 5000 team rpm 3000 of 5000", "1/2 alice rpm -2000 of 5000 team rpm -2000 of 5000", one, one, one, one,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
