package policy_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/store"
)

// The parts of a limit never add up to more than the limit, in burst or in rate.
func TestShareParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := store.Limit{
			Name: "x", Amount: rapid.Int64Range(1, 1e12).Draw(rt, "amount"), Period: time.Duration(rapid.Int64Range(1e9, 1e15).Draw(rt, "period")),
			Burst: rapid.Int64Range(1, 1e15).Draw(rt, "burst"),
		}
		stored := limit // in millitokens
		stored.Amount, stored.Burst = limit.Amount*1000, limit.Burst*1000
		nums := rapid.SliceOfN(rapid.Int64Range(0, 1000), 2, 6).Draw(rt, "shares")
		var den int64
		for _, n := range nums {
			den += n
		}
		if den == 0 {
			return
		}
		var amount, burst float64 // in tokens; float64 is exact up to 2^53 millitokens, and exactness is not needed here
		for _, n := range nums {
			l := policy.Share{Num: n, Den: den}.Of(stored)
			if l.Burst < 1 || l.Amount < 1 {
				rt.Fatalf("%d/%d of %v is %v", n, den, limit, l)
			}
			if l.Burst >= 1000 { // it can admit requests
				amount += float64(l.Amount) / 1000
				burst += float64(l.Burst) / 1000
			}
			least := policy.Share{Num: n, Den: den, Least: true}.Of(stored)
			if least.Burst < 1000 {
				rt.Fatalf("the least is %d millitokens", least.Burst)
			}
		}
		if amount > float64(limit.Amount)*(1+1e-12) || burst > float64(limit.Burst)*(1+1e-12) {
			rt.Fatalf("%v, %v of %v together", amount, burst, limit)
		}
	})
}
