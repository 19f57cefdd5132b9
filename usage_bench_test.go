package weir_test

import (
	"context"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// BenchmarkAdmitted measures admitting decisions, which usage must not slow down. It also runs without usage, and with an
// observer of near-limit events.
func BenchmarkAdmitted(b *testing.B) {
	for _, c := range []struct {
		name string
		max  int
		near func(context.Context, weir.NearLimitEvent)
	}{
		{"usage", 0, nil},
		{"off", -1, nil},
		{"near", 0, func(context.Context, weir.NearLimitEvent) {}},
	} {
		b.Run(c.name, func(b *testing.B) {
			lim, err := weir.New(weir.Config{
				Store: memory.New(&memory.Config{MaxUsage: c.max}), Observer: &weir.Observer{NearLimit: c.near},
			})
			must(b, err)
			defer lim.Close()
			ctx := b.Context()
			must(b, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerSecond("rps", 1_000_000).WithBurst(1e12)))
			b.Run("Allow", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if ok, err := lim.Allow(ctx, "alice", "api"); !ok {
						b.Fatal(err)
					}
				}
			})
			req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}
			b.Run("Acquire", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := lim.Acquire(ctx, req); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
