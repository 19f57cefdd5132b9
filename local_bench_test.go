package weir_test

import (
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// remote is an in-memory store that the limiter treats as one that may block.
type remote struct{ store.Store }

// BenchmarkRemote measures the cost of a decision apart from the store's answer.
func BenchmarkRemote(b *testing.B) {
	for _, how := range []weir.OnUnavailable{weir.OnUnavailableDeny, weir.OnUnavailableLocal} {
		lim, err := weir.New(weir.Config{Store: remote{memory.New(nil)}, OnUnavailable: how})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = lim.Close() })
		if err := admin.New(lim).Limits.Set(b.Context(), admin.Scope{}, weir.PerSecond("rps", 1_000_000), weir.PerMinute("tpm", 60_000_000)); err != nil {
			b.Fatal(err)
		}
		b.Run("allow/"+string(how), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lim.Allow(b.Context(), "alice", "api"); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("acquire/"+string(how), func(b *testing.B) {
			b.ReportAllocs()
			req := weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rps": 1}}
			for b.Loop() {
				if _, err := lim.Acquire(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
