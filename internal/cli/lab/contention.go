package lab

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/batch/hot"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/cost"
	"github.com/weirlimits/weir/internal/lab/simulate"
)

const (
	// contenders is the most processes that are simulated: with more, writes differ by a hundredth.
	contenders = 100
	// touches is how many decisions of each process are simulated, in at least settled: several times as long as a
	// split takes. In all, they are fewest to most.
	touches, settled, fewest, most = 40, 20 * time.Second, 4000, 30_000
	// alone is the rate of requests for an entity up to which those of a single process do not share writes.
	alone = 20
	// More than busy requests a second of a process share the writes of its two items, and are not simulated. Nor are
	// more than beyond times the writes that the table accepts.
	busy, beyond = 2000, 2
)

// contend sets how many writes are repeated and shared when several processes write the same buckets, by simulating
// some of the entities or, of one, some of the items that it is split into. Simulate and cost thereby have one model.
func contend(ctx context.Context, t *cost.Traffic, limit string) error {
	cfg := simulate.Config{Seed: 1, Processes: int(min(t.Processes, contenders))}
	if limit != "" {
		var err error
		if cfg.Limit, err = weir.ParseLimit("requests:" + limit); err != nil {
			return kit.Usagef("--limit: %w", err)
		}
	}
	rate := t.Requests * (1 - t.Refused) / t.Entities // of each entity
	if rate == 0 || t.Processes == 1 && rate <= alone {
		return nil
	}
	shared, err := contention(&cfg, rate, t.Entities)
	if err != nil {
		return err
	}
	r, err := simulate.Run(ctx, cfg, nil)
	if err != nil {
		return kit.Usage(err)
	}
	// The first writes of processes to a bucket are guesses that an average hour does not have, and splits take time.
	var half simulate.Interval
	for _, in := range r.Intervals[len(r.Intervals)/2:] {
		half.Asked, half.Units, half.InVain = half.Asked+in.Asked, half.Units+in.Units, half.InVain+in.InVain
	}
	if half.Units > 0 {
		// The share of repeated writes is at most one: of refusals, more may be in vain.
		useful := max(half.Units-half.InVain, (half.Units+1)/2)
		t.PerWrite = max(1, shared*float64(half.Asked)/float64(useful))
		t.InVain = min(1, max(0, float64(half.Units)/float64(half.Asked)/shared*t.PerWrite-1))
	}
	return nil
}

// contention completes what to simulate for so many entities with this rate of requests each, and returns how many
// requests each simulated one stands for. The default limit is ten times the rate.
func contention(cfg *simulate.Config, rate, entities float64) (shared float64, err error) {
	tokens, limited := rate, cfg.Limit != weir.Limit{}
	if limited {
		period := cmp.Or(cfg.Limit.Period, time.Hour) // of a quota, the shortest window
		tokens = min(rate, float64(cfg.Limit.Amount)/period.Seconds())
	} else {
		cfg.Limit = weir.PerSecond("requests", 1)
	}
	if err := cfg.Check(); err != nil { // sets defaults
		return 0, kit.Usage(err)
	}
	parts := partsOf(cfg, tokens)
	cfg.MaxShards /= parts
	rate /= float64(parts)
	simulated := min(rate, busy*float64(cfg.Processes), beyond*cfg.Capacity*float64(cfg.MaxShards))
	part := func(n int64) int64 { return int64(math.Ceil(float64(n) / float64(parts))) }
	cfg.Limit.Amount, cfg.Limit.Burst = part(cfg.Limit.Amount), part(cfg.Limit.Burst)
	if !limited {
		cfg.Limit = weir.PerMinute("requests", int64(math.Ceil(10*60*simulated)))
	}
	decisions := min(max(touches*float64(cfg.Processes), settled.Seconds()*simulated, fewest), most)
	const longest = 24 * time.Hour
	cfg.Entities = int(min(math.Ceil(decisions/(simulated*longest.Seconds())), entities, contenders))
	cfg.Rate = simulated * float64(cfg.Entities)
	cfg.For = time.Duration(min(decisions/cfg.Rate, longest.Seconds()) * float64(time.Second))
	return rate / simulated, nil
}

// partsOf returns how many equal parts of a bucket, with so many tokens a second, share nothing: half of the items that
// it is split into, so that a part may be split once more.
func partsOf(cfg *simulate.Config, tokens float64) int {
	n, took := 1, cfg.P50.Seconds()
	for ; 2*n < cfg.MaxShards; n *= 2 {
		// A process makes one write of an item at a time. What comes meanwhile shares the next.
		each := tokens / float64(2*n) / float64(cfg.Processes)
		if float64(cfg.Processes)/(took+math.Exp(-each*took)/each) <= hot.Rate {
			break
		}
	}
	return n
}
