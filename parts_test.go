package weir_test

import (
	"testing"

	"github.com/weirlimits/weir"
	fallback "github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// policies returns the part of a limiter that resolves limits.
func policies(lim *weir.Limiter) *policy.Namespace { return parts.Of(lim).Policies }

func (b *bundle) cacheStats() policy.Stats { return policies(b.Limiter).Stats() }

func (b *bundle) outageStats() fallback.Stats { return parts.Of(b.Limiter).Outage.Stats() }

// knows sets what is known of records that cannot be read.
func (b *bundle) knows(lastGood func([]store.Key) (store.Got, bool)) {
	policies(b.Limiter).Use(nil, lastGood)
}

// limiterWith returns a limiter that has a part of the limits.
func limiterWith(t *testing.T, shares policy.Shares, cfg weir.Config) *weir.Limiter {
	t.Helper()
	lim, err := weir.New(cfg)
	must(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	policies(lim).Use(shares, nil)
	return lim
}
