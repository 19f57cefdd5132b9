package weir_test

import (
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/memory"
)

// BenchmarkAdmitted is what usage must not slow down: decisions that admit.
func BenchmarkAdmitted(b *testing.B) {
	lim := limiterOn(b, memory.New(nil))
	ctx := b.Context()
	must(b, lim.SetLimits(ctx, weir.Scope{}, weir.PerSecond("rps", 1_000_000).WithBurst(1e12)))
	b.Run("Allow", func(b *testing.B) {
		for b.Loop() {
			if ok, err := lim.Allow(ctx, "alice", "api"); !ok {
				b.Fatal(err)
			}
		}
	})
	req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}
	b.Run("Acquire", func(b *testing.B) {
		for b.Loop() {
			if _, err := lim.Acquire(ctx, req); err != nil {
				b.Fatal(err)
			}
		}
	})
}
