package serve

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	limiter "github.com/weirlimits/weir/internal/parts"
)

// decideFlags configure how long a decision may take.
type decideFlags struct {
	Within time.Duration `json:"decide_within" range:"0s..1s"`

	logged time.Duration // how long a decision could take by the last line of the log; 0 before the first
	tight  bool          // the store was then too far away for that
}

// How long a decision may take at least, unless the flag is set. Envoy waits 20 ms unless it is configured to wait
// longer.
const (
	decideFast = 12 * time.Millisecond
	// decideDurable is for stores whose decisions may wait for a durable write: on disk, an entity's first decision
	// waits for two file writes; on DynamoDB, every decision waits for a round trip. With a shorter time, a busy disk
	// would be taken for a broken one.
	decideDurable = 60 * time.Millisecond
	// decideMost is how long a decision may take at most.
	decideMost = time.Second
)

const (
	// firstProbes is how many round trips are measured at the start, beside the first, which may have to connect.
	firstProbes = 9
	// probeEvery is how often a round trip is measured, should nobody else make one.
	probeEvery = 10 * time.Second
)

//nolint:unparam // a step of a part may fail
func (f *decideFlags) open(_ context.Context, s *serving) error {
	s.run.Config.DecideWithin = f.within(s.run.Store, 0)
	return nil
}

// within returns how long a decision on a store may take, by the time of a round trip: long enough for one whose limits
// are not cached.
func (f *decideFlags) within(address secret.Address, trip time.Duration) time.Duration {
	if f.Within > 0 {
		return f.Within
	}
	least := decideFast
	if strings.HasPrefix(string(address), "disk:") || strings.HasPrefix(string(address), "dynamodb:") {
		least = decideDurable
	}
	return min(max(least, limiter.Cold(trip)), decideMost)
}

// start measures round trips to the store, and lets the time for decisions follow them from now on.
func (f *decideFlags) start(ctx context.Context, s *serving) error {
	p := limiter.Of(s.lim)
	if p.Outage == nil { // the store never waits
		return nil
	}
	begun, cancel := context.WithTimeout(ctx, decideMost)
	defer cancel()
	if limiter.Probe(begun, s.run.Opened, 1) == nil {
		_ = limiter.Probe(begun, p.Store, firstProbes) // without an answer, there is nothing to follow
	}
	f.follow(s, p)
	s.tasks = append(s.tasks, func(ctx context.Context) error {
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			_ = limiter.Probe(ctx, p.Store, 1)
			f.follow(s, p)
		}
	})
	return nil
}

// follow sets the time for decisions by the round trips measured. It logs them at first, when that time has at least
// doubled or halved, and when it becomes too short or is enough again.
func (f *decideFlags) follow(s *serving, p *limiter.Parts) {
	p50, p99 := p.Trips.Quantile(0.5), p.Trips.Quantile(0.99)
	if p99 == 0 {
		return
	}
	within, cold := f.within(s.run.Store, p99), limiter.Cold(p99)
	p.Within.Set(within)
	tight := within < cold
	if tight == f.tight && within < 2*f.logged && 2*within > f.logged {
		return
	}
	f.logged, f.tight = within, tight
	log := s.log.With(slog.Duration("p50", p50), slog.Duration("p99", p99), slog.Duration("cold", cold),
		slog.Duration("decide_within", within))
	if tight {
		log.Warn("--decide-within is shorter than a decision takes whose limits are not cached")
	} else {
		log.Info("measured round trips to the store")
	}
}
