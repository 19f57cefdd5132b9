package whatif

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
)

// Suggestion is the limit that, on its own, would have refused no more than a share of the tokens. Its burst is
// scaled with its amount.
type Suggestion struct {
	Limit  weir.Limit `json:"limit"` // the limit that was tried
	Target float64    `json:"target"`
	// Least is the smallest limit that may be enough: any smaller one certainly refuses more. Enough is the smallest
	// that is certainly enough. Even is between them, see the package documentation. Nil: no limit that weir allows is
	// enough.
	Least  *weir.Limit `json:"may_be_enough"`
	Even   *weir.Limit `json:"enough_if_even"`
	Enough *weir.Limit `json:"surely_enough"`
}

// suggest searches for values of each limit, by doubling and halving.
func (r *Report) suggest(all []*series, target float64) {
	by := make(map[weir.Limit][]*series)
	for _, s := range all {
		by[s.limit] = append(by[s.limit], s)
	}
	for l, of := range by {
		r.Suggest = append(r.Suggest, Suggestion{
			Limit: l, Target: target,
			Least:  smallest(l, of, target, func(b bounds) float64 { return b.least }),
			Even:   smallest(l, of, target, func(b bounds) float64 { return b.even }),
			Enough: smallest(l, of, target, func(b bounds) float64 { return b.most }),
		})
	}
	slices.SortFunc(r.Suggest, func(a, b Suggestion) int { return strings.Compare(a.Limit.String(), b.Limit.String()) })
}

func smallest(l weir.Limit, of []*series, target float64, bound func(bounds) float64) *weir.Limit {
	asked := 0.0
	for _, s := range of {
		for i := range s.windows {
			asked += s.windows[i].spent + s.windows[i].refused
		}
	}
	enough := func(amount int64) bool {
		refused, limit := 0.0, scaled(l, amount)
		for _, s := range of {
			t := newTrial(limit)
			for i := range s.windows {
				refused += bound(t.see(&s.windows[i]))
			}
		}
		return refused <= target*asked+1e-6
	}
	low, high := int64(0), l.Amount
	for valid(l, high) && !enough(high) {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; valid(l, mid) && !enough(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	if !valid(l, high) {
		return nil
	}
	found := scaled(l, high)
	return &found
}

// scaled returns a limit with another amount, and the burst scaled in proportion.
func scaled(l weir.Limit, amount int64) weir.Limit {
	burst := cmp.Or(l.Burst, l.Amount)
	l.Burst = max(1, min(clock.MulDivFloor(burst, amount, l.Amount), weir.MaxTokens+1)) // valid checks the range
	l.Amount = amount
	return l
}

func valid(l weir.Limit, amount int64) bool {
	l = scaled(l, amount)
	p := clock.Params{Amount: l.Amount * 1000, Period: int64(l.Period), Burst: l.Burst * 1000}
	return amount <= weir.MaxTokens && l.Burst <= weir.MaxTokens && p.Check() == nil
}
