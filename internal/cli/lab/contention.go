package lab

import (
	"context"
	"math"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

const (
	// contenders is the most processes that are simulated: with more, writes differ by a hundredth.
	contenders = 100
	// touches is how many decisions of each process are simulated. In all, they are fewest to most.
	touches, fewest, most = 40, 4000, 100_000
	// alone is the rate of requests for an entity up to which those of a single process do not share writes.
	alone = 20
)

// contend sets how many writes are repeated and shared when several processes write the same buckets, by simulating
// some of the entities. Simulate and cost thereby have one model.
func contend(ctx context.Context, t *cost.Traffic, limit string) error {
	rate := t.Requests / t.Entities // of each entity
	if t.Processes == 1 && rate <= alone {
		return nil
	}
	cfg := simulate.Config{
		Seed: 1, Processes: int(min(t.Processes, contenders)), OnUnavailable: simulate.Deny,
		Limit: weir.PerMinute("requests", int64(math.Ceil(10*60*rate))),
	}
	if limit != "" {
		l, err := weir.ParseLimit("requests:" + limit)
		if err != nil {
			return kit.Usagef("--limit: %w", err)
		}
		cfg.Limit = l
	}
	decisions := min(max(touches*float64(cfg.Processes), fewest), most)
	const longest = 24 * time.Hour
	entities := math.Ceil(decisions / (rate * longest.Seconds()))
	cfg.Entities = int(min(entities, t.Entities, contenders))
	cfg.Rate = rate * float64(cfg.Entities)
	cfg.For = min(time.Duration(decisions/cfg.Rate*float64(time.Second)), longest)
	r, err := simulate.Run(ctx, cfg, nil)
	if err != nil {
		return kit.Usage(err)
	}
	// The first writes of processes to a bucket are guesses that an average hour does not have.
	asked, calls := 0, 0
	for _, in := range r.Intervals[len(r.Intervals)/2:] {
		asked, calls = asked+in.Asked, calls+in.Calls
	}
	if useful := r.Calls - r.InVain; asked > 0 && useful > 0 {
		t.PerWrite = max(1, float64(r.Asked)/float64(useful))
		t.InVain = min(1, max(0, float64(calls)/float64(asked)*t.PerWrite-1))
	}
	return nil
}
