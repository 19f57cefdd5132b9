package whatif

import (
	"slices"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/report"
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
	enough := func(limit weir.Limit) bool {
		refused := 0.0
		for _, s := range of {
			t := newTrial(limit)
			for i := range s.windows {
				refused += bound(t.see(&s.windows[i]))
			}
		}
		return refused <= target*asked+1e-6
	}
	return report.Smallest(l, 0, enough)
}
