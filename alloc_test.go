package weir_test

import (
	"strings"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// What a decision costs in allocations, on the store that waits for nothing.
//
//nolint:paralleltest // allocations are counted over the whole process
func TestAllocations(t *testing.T) {
	lim := limiterOn(t, memory.New(nil))
	b := &bundle{Limiter: lim, admin: admin.New(lim), t: t, ctx: t.Context()}
	b.chain("child", "parent")
	b.set("", "", weir.PerSecond("rps", 1_000_000), weir.PerSecond("tps", 1_000_000))
	b.set("", "plain", weir.PerSecond("rps", 1_000_000))
	tokens := weir.Tokens{"rps": 1, "tps": 5}
	tests := []struct {
		name string
		most float64
		call func() error
	}{
		{"Allow", 0, func() error { _, err := lim.Allow(b.ctx, "alice", "plain"); return err }},
		{"Allow, two limits, child and parent", 2, func() error { _, err := lim.Allow(b.ctx, "child", "api"); return err }},
		{"Acquire and Commit, two limits, child and parent", 2, func() error {
			lease, err := lim.Acquire(b.ctx, weir.Request{Entity: "child", Resource: "api", Tokens: tokens})
			if err != nil {
				return err
			}
			return lease.Commit(b.ctx)
		}},
	}
	for _, tt := range tests {
		must(t, tt.call())
		n := testing.AllocsPerRun(200, func() {
			if err := tt.call(); err != nil {
				t.Fatal(err)
			}
		})
		if n > tt.most {
			t.Errorf("%s: %v allocations, at most %v", tt.name, n, tt.most)
		}
	}
	must(t, lim.Close())
}

func BenchmarkAllow(b *testing.B) {
	for _, text := range []string{"rps:1M/s", "requests:1000M/month@Europe/Berlin"} {
		name, _, _ := strings.Cut(text, ":")
		b.Run(name, func(b *testing.B) {
			lim := limiterOn(b, memory.New(nil))
			must(b, admin.New(lim).Limits.Set(b.Context(), admin.Scope{}, parsed(b, text)))
			ctx := b.Context()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := lim.Allow(ctx, "alice", "api"); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func BenchmarkAcquireCommit(b *testing.B) {
	lim := limiterOn(b, memory.New(nil))
	ctx := b.Context()
	must(b, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "parent"}))
	must(b, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "child", Parent: "parent", Cascade: true}))
	must(b, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerSecond("rps", 1_000_000), weir.PerSecond("tps", 1_000_000)))
	req := weir.Request{Entity: "child", Resource: "api", Tokens: weir.Tokens{"rps": 1, "tps": 1}}
	b.ReportAllocs()
	for b.Loop() {
		if lease, err := lim.Acquire(ctx, req); err == nil {
			_ = lease.Commit(ctx)
		}
	}
}

// BenchmarkGrid decides over three entities, each on the resource, its group and the total.
func BenchmarkGrid(b *testing.B) {
	lim := limiterOn(b, memory.New(nil))
	ctx, limits := b.Context(), admin.New(lim).Limits
	must(b, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "org"}))
	must(b, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "team", Parent: "org", Cascade: true}))
	must(b, admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key", Parent: "team", Cascade: true}))
	rate := weir.PerSecond("rps", 1_000_000)
	must(b, limits.SetGroup(ctx, "api", "apis"))
	must(b, limits.Set(ctx, admin.Scope{Resource: weir.GroupResource("apis")}, rate))
	must(b, limits.Set(ctx, admin.Scope{Resource: weir.TotalResource}, rate))
	for _, columns := range []string{"2 groups", "resource and 2 groups"} {
		if columns != "2 groups" {
			must(b, limits.Set(ctx, admin.Scope{}, rate))
		}
		b.Run("Allow, 3 entities, "+columns, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lim.Allow(ctx, "key", "api"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Acquire, 3 entities, "+columns, func(b *testing.B) {
			req := weir.Request{Entity: "key", Resource: "api", Tokens: weir.Tokens{"rps": 1}}
			b.ReportAllocs()
			for b.Loop() {
				if lease, err := lim.Acquire(ctx, req); err == nil {
					_ = lease.Commit(ctx)
				}
			}
		})
	}
}
