package report

import (
	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock"
)

// Params returns the arithmetic of a limit, in millitokens. More than can be spent at once stays more.
func Params(l weir.Limit) clock.Params {
	if l.Slots > 0 {
		return clock.Params{Burst: Milli(l.Slots), Heal: int64(l.Heal)}
	}
	return clock.Params{Amount: Milli(l.Amount), Period: int64(l.Period), Burst: Milli(l.Burst), Window: l.Window}
}

// Milli converts tokens to millitokens. More than can be spent at once stays more.
func Milli(tokens int64) int64 { return min(tokens, weir.MaxTokens+1) * 1000 }
