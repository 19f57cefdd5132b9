package weir_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

func TestLevels(t *testing.T) {
	t.Parallel()
	sys, res := weir.PerMinute("rpm", 10), weir.PerMinute("rpm", 20)
	def, own := weir.PerMinute("rpm", 30), weir.PerMinute("tpm", 40)
	tests := []struct {
		name   string
		set    map[admin.Scope]weir.Limit
		source weir.Source
		limit  string
		burst  int64
	}{
		{"system", map[admin.Scope]weir.Limit{{}: sys}, weir.SourceSystem, "rpm", 10},
		{"resource over system", map[admin.Scope]weir.Limit{{}: sys, {Resource: "api"}: res}, weir.SourceResource, "rpm", 20},
		{
			"entity default over resource",
			map[admin.Scope]weir.Limit{{}: sys, {Resource: "api"}: res, {Entity: "alice"}: def},
			weir.SourceEntityDefault, "rpm", 30,
		},
		{
			"entity on resource over all, not merged",
			map[admin.Scope]weir.Limit{{}: sys, {Resource: "api"}: res, {Entity: "alice"}: def, {Entity: "alice", Resource: "api"}: own},
			weir.SourceEntity, "tpm", 40,
		},
		{
			"another's own limits do not apply",
			map[admin.Scope]weir.Limit{{}: sys, {Entity: "bob"}: def, {Entity: "alice", Resource: "db"}: own, {Resource: "db"}: res},
			weir.SourceSystem, "rpm", 10,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for scope, limit := range tt.set {
				b.set(scope.Entity, scope.Resource, limit)
			}
			d := b.take("alice", weir.Tokens{tt.limit: 3}).Decision() // alice was never created
			want := []weir.LimitStatus{{
				Entity: "alice", Resource: "api", Limit: tt.limit, Source: tt.source, Requested: 3, Available: tt.burst - 3,
				Amount: tt.burst, Period: time.Minute, Burst: tt.burst, Full: d.Statuses[0].Full,
			}}
			if diff := cmp.Diff(want, d.Statuses, statusFields); diff != "" {
				t.Error(diff)
			}
			if !d.Allowed || d.Degraded || !d.At.Equal(noon) || d.RetryAfter != 0 {
				t.Errorf("decision %+v", d)
			}
		})
	}
}

// statusFields compares the fields of a status that users see.
var statusFields = cmp.FilterPath(func(p cmp.Path) bool {
	f, ok := p.Last().(cmp.StructField)
	return ok && strings.ToLower(f.Name()[:1]) == f.Name()[:1]
}, cmp.Ignore())

func TestNoLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("bob", "", weir.PerMinute("rpm", 1))
	b.set("alice", "db", weir.PerMinute("rpm", 1))
	_, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "api"})
	var none *weir.NoLimitsError
	if !errors.As(err, &none) || *none != (weir.NoLimitsError{Entity: "alice", Resource: "api"}) {
		t.Fatalf("got %v", err)
	}
	wantErr(t, err, weir.ErrNoLimits)
	for _, place := range []string{`entity "alice"`, `resource "api"`, "the system"} {
		if !strings.Contains(err.Error(), place) {
			t.Errorf("%q does not say that it looked at %s", err, place)
		}
	}
	_, err = b.Allow(b.ctx, "alice", "api")
	wantErr(t, err, weir.ErrNoLimits)
	_, err = b.Available(b.ctx, "alice", "api")
	wantErr(t, err, weir.ErrNoLimits)
	_, err = b.AcquireAll(b.ctx, []weir.Request{{Entity: "bob", Resource: "api"}, {Entity: "alice", Resource: "api"}})
	wantErr(t, err, weir.ErrNoLimits)
	b.wantLeft("bob", weir.Tokens{"rpm": 1})
}

// Vector 15 of the token clock: a limit that the request does not name takes part with 0 tokens, and refuses if it is in
// debt.
func TestUnnamedLimitInDebt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	lease := b.take("alice", nil)
	if _, err := lease.Adjust(b.ctx, weir.Tokens{"tpm": 1500}); err != nil {
		t.Fatal(err)
	}
	over := b.refused("alice", weir.Tokens{"rpm": 1})
	if over.RetryAfter != 30*time.Second {
		t.Errorf("retry after %v, want 30s", over.RetryAfter)
	}
	rpm, tpm := over.Statuses[0], over.Statuses[1]
	if rpm.Refused || rpm.Available != 10 || !tpm.Refused || tpm.Available != -500 || tpm.Requested != 0 {
		t.Errorf("statuses %+v", over.Statuses)
	}
	b.refused("alice", nil)
	b.clock.advance(30*time.Second - 1)
	b.refused("alice", weir.Tokens{"rpm": 1})
	b.clock.advance(1)
	b.take("alice", weir.Tokens{"rpm": 1})
	b.wantLeft("alice", weir.Tokens{"rpm": 9, "tpm": 0})
}

// Vector 13: if one of two limits refuses, neither is debited, and both are reported.
func TestRefusalSpendsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 1000))
	b.take("alice", weir.Tokens{"tpm": 1000})
	over := b.refused("alice", weir.Tokens{"rpm": 1, "tpm": 1})
	want := []weir.LimitStatus{
		{Entity: "alice", Resource: "api", Limit: "rpm", Source: "system", Requested: 1, Available: 10, Amount: 10, Period: time.Minute, Burst: 10},
		{
			Entity: "alice", Resource: "api", Limit: "tpm", Source: "system", Requested: 1, Available: 0, Amount: 1000, Period: time.Minute,
			Burst: 1000, Full: over.Statuses[1].Full, Refused: true, RetryAfter: 60 * time.Millisecond,
		},
	}
	if diff := cmp.Diff(want, over.Statuses, statusFields); diff != "" {
		t.Error(diff)
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 10, "tpm": 0})
	if msg := over.Error(); !strings.Contains(msg, "tpm of alice on api has 0 of 1000 available, 1 requested; retry in 60ms") ||
		strings.Contains(msg, "rpm") {
		t.Errorf("message %q", msg)
	}
}

func TestRetryAfterIsTight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("child", "parent")
	b.set("child", "", weir.PerMinute("rpm", 7), weir.PerHour("rph", 11))
	b.set("parent", "", weir.Limit{Name: "rpm", Amount: 3, Period: 77 * time.Second, Burst: 5})
	b.clock.advance(789_012_345)
	for i := range 40 {
		over := error(nil)
		for over == nil {
			_, over = b.Acquire(b.ctx, weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": 1 + int64(i%3), "rph": 1}})
		}
		var refused *weir.ExceededError
		if !errors.As(over, &refused) || refused.RetryAfter <= 0 {
			t.Fatal(over)
		}
		again := weir.Tokens{"rpm": 1 + int64(i%3), "rph": 1}
		b.clock.advance(refused.RetryAfter - 1)
		if late := b.refused("child", again); late.RetryAfter != 1 {
			t.Fatalf("1 ns before, retry after %v", late.RetryAfter)
		}
		b.clock.advance(1)
		b.take("child", again)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	tests := []struct {
		name  string
		req   weir.Request
		field string
	}{
		{"negative", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": -1}}, "tokens.rpm"},
		{"most negative", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": math.MinInt64}}, "tokens.rpm"},
		{"negative, large enough to wrap", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": -18446744073709551}}, "tokens.rpm"},
		{"overflow", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": math.MaxInt64}}, "tokens.rpm"},
		{"overflow that wraps to something small", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": 18446744073709552}}, "tokens.rpm"},
		{"unknown limit", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": 1, "rps": 1}}, "tokens.rps"},
		{"unknown limit, 0 of it", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rps": 0}}, "tokens.rps"},
		{"hidden name", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"wcu": 1}}, "tokens.wcu"},
		{"negative of the parent's", weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"tpm": -5}}, "tokens.tpm"},
		{"no entity", weir.Request{Resource: "api"}, "entity"},
		{"no resource", weir.Request{Entity: "child"}, "resource"},
		{"long entity", weir.Request{Entity: long, Resource: "api"}, "entity"},
		{"control character", weir.Request{Entity: "a\x00b", Resource: "api"}, "entity"},
		{"bad UTF-8", weir.Request{Entity: "child", Resource: "a\xffb"}, "resource"},
		{"reserved resource", weir.Request{Entity: "child", Resource: "_default_"}, "resource"},
		{"reserved entity", weir.Request{Entity: "_", Resource: "api"}, "entity"},
		{"unknown on_unavailable", weir.Request{Entity: "child", Resource: "api", OnUnavailable: "perhaps"}, "on_unavailable"},
		{"unknown on_unavailable", weir.Request{Entity: "child", Resource: "api", OnUnavailable: "locally"}, "on_unavailable"},
	}
	b := setup(t)
	b.chain("child", "parent")
	b.set("child", "", weir.PerMinute("rpm", 10))
	b.set("parent", "", weir.PerMinute("rpm", 100), weir.PerMinute("tpm", 1000))
	for _, tt := range tests {
		_, err := b.Acquire(b.ctx, tt.req)
		wantConfigError(t, err, tt.field)
		_, err = b.Wait(b.ctx, tt.req)
		wantConfigError(t, err, tt.field)
		_, err = b.AcquireAll(b.ctx, []weir.Request{{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": 1}}, tt.req})
		wantConfigError(t, err, tt.field)
		if t.Failed() {
			t.Fatal(tt.name)
		}
	}
	if _, takes, _ := b.fake.counts(); takes != 0 {
		t.Errorf("the store was asked %d times", takes)
	}
	b.wantLeft("child", weir.Tokens{"rpm": 10})
	b.wantLeft("parent", weir.Tokens{"rpm": 100, "tpm": 1000})
}

func TestPrintableIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("r-p.m", 1))
	for _, id := range []string{"openai/gpt-4o", "a#b", "a:b", "-x", "PK", "ключ", "a b", strings.Repeat("x", 256)} {
		b.takeFor(weir.Request{Entity: id, Resource: id, Tokens: weir.Tokens{"r-p.m": 1}})
		b.refusedFor(weir.Request{Entity: id, Resource: id, Tokens: weir.Tokens{"r-p.m": 1}})
	}
	// IDs whose concatenations are equal must not share a bucket.
	b.takeFor(weir.Request{Entity: "a", Resource: "b/c", Tokens: weir.Tokens{"r-p.m": 1}})
	b.takeFor(weir.Request{Entity: "a/b", Resource: "c", Tokens: weir.Tokens{"r-p.m": 1}})
}

func TestBurst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.chain("child", "parent")
	b.set("child", "", weir.PerMinute("rpm", 100).WithBurst(10))
	b.set("parent", "", weir.PerMinute("rpm", 5))
	for n, want := range map[int64]weir.BurstError{
		11: {Entity: "child", Resource: "api", Limit: "rpm", Requested: 11, Burst: 10},
		6:  {Entity: "parent", Resource: "api", Limit: "rpm", Requested: 6, Burst: 5},
	} {
		_, err := b.Acquire(b.ctx, weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rpm": n}})
		if burst, ok := errors.AsType[*weir.BurstError](err); !ok || *burst != want {
			t.Errorf("%d: got %v", n, err)
		}
		wantErr(t, err, weir.ErrExceedsBurst)
		if errors.Is(err, weir.ErrExceeded) {
			t.Errorf("%v counts as a refusal, which would be tried again", err)
		}
	}
	if _, takes, _ := b.fake.counts(); takes != 0 {
		t.Errorf("the store was asked %d times", takes)
	}
	b.take("child", weir.Tokens{"rpm": 5})
}

func TestAllow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "api", weir.PerMinute("rpm", 3), weir.PerMinute("tpm", 5), weir.PerDay("requests", 2))
	for i, want := range []bool{true, true, false} {
		if ok, err := b.Allow(b.ctx, "alice", "api"); ok != want || err != nil {
			t.Fatalf("call %d: %v, %v", i, ok, err)
		}
	}
	b.wantLeft("alice", weir.Tokens{"rpm": 1, "tpm": 5, "requests": 0})
	b.set("", "db", weir.PerMinute("tpm", 5))
	_, err := b.Allow(b.ctx, "alice", "db")
	wantConfigError(t, err, "resource")

	// Only the parent has a requests limit: it is charged.
	b.chain("child", "parent")
	b.set("child", "db", weir.PerMinute("tpm", 5))
	b.set("parent", "db", weir.PerSecond("rps", 1))
	for i, want := range []bool{true, false} {
		if ok, err := b.Allow(b.ctx, "child", "db"); ok != want || err != nil {
			t.Fatalf("child call %d: %v, %v", i, ok, err)
		}
	}
	// A limit that Allow does not count still refuses if it is in debt.
	lease := b.takeFor(weir.Request{Entity: "eve", Resource: "api"})
	if _, err := lease.Adjust(b.ctx, weir.Tokens{"tpm": 6}); err != nil {
		t.Fatal(err)
	}
	if ok, err := b.Allow(b.ctx, "eve", "api"); ok || err != nil {
		t.Errorf("allowed in debt: %v, %v", ok, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	ok := weir.Config{Store: memory.New(nil)}
	tests := map[string]func(*weir.Config){
		"Config.Store":          func(c *weir.Config) { c.Store = nil },
		"Config.Namespace":      func(c *weir.Config) { c.Namespace = "a\nb" },
		"Config.NamespaceID":    func(c *weir.Config) { c.NamespaceID = "_" },
		"Config.CacheEntries":   func(c *weir.Config) { c.CacheEntries = -1 },
		"Config.StoreTimeout":   func(c *weir.Config) { c.StoreTimeout = -1 },
		"Config.DecideWithin":   func(c *weir.Config) { c.DecideWithin = 1001 * time.Millisecond },
		"Config.AuditRetention": func(c *weir.Config) { c.AuditRetention = -1 },
		"Config.OnUnavailable":  func(c *weir.Config) { c.OnUnavailable = "locally" },
	}
	for field, spoil := range tests {
		cfg := ok
		spoil(&cfg)
		_, err := weir.New(cfg)
		wantConfigError(t, err, field)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.set("", "", weir.PerMinute("rpm", 1))
	b.take("alice", nil)
	if err := b.In("other").Close(); err != nil { // closing a view closes nothing
		t.Fatal(err)
	}
	b.take("alice", nil)
	for range 2 {
		must(t, b.Close())
	}
	for _, entity := range []string{"alice", "bob"} { // one in the cache, one not
		_, err := b.Acquire(b.ctx, weir.Request{Entity: entity, Resource: "api"})
		wantErr(t, err, weir.ErrClosed)
		if errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%v: closed is not unavailable", err)
		}
		_, err = b.Allow(b.ctx, entity, "api")
		wantErr(t, err, weir.ErrClosed)
	}
	if err := memoryLimiter(t).Close(); err != nil {
		t.Errorf("close before use: %v", err)
	}
}

func TestCloseWhileInUse(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *weir.Config) { c.CacheTTL = -1 })
	b.set("", "", weir.PerMinute("rpm", 1))
	done := make(chan error)
	for i := range 8 {
		go func() {
			for {
				if _, err := b.Acquire(b.ctx, weir.Request{Entity: fmt.Sprint(i), Resource: "api"}); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	must(t, b.Close())
	for range 8 {
		wantErr(t, <-done, weir.ErrClosed)
	}
}
