package aws

import (
	"fmt"
	"strconv"

	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/lab/cost"
)

// costOf returns the expression of the cost alarm: USD a month at the pace of a day with w units written, r read and f
// milliseconds of the aggregator, by the default price list.
func costOf(full stack.Values) string {
	p, err := cost.ReadPrices(cost.DefaultPrices)
	if err != nil {
		panic(err) // it is part of the program
	}
	write, read, second := p.Pace()
	text := fmt.Sprintf("w*%.12f+FILL(r,0)*%.12f", write, read)
	if memory, err := strconv.ParseFloat(full["Memory"], 64); err == nil && full["NoAggregator"] != "true" {
		text += fmt.Sprintf("+FILL(f,0)*%.12f", memory/1024*second/1000)
	}
	return text
}
