package serve

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
)

// decideFlags configure how long a decision may take.
type decideFlags struct{ within time.Duration }

// How long a decision may take by default. Envoy waits 20 ms unless it is configured to wait longer.
const (
	decideFast = 12 * time.Millisecond
	// decideDurable is for stores whose decisions may wait for a durable write: on disk, an entity's first decision
	// waits for two file writes; on DynamoDB, every decision waits for a round trip. With a shorter time, a busy disk
	// would be taken for a broken one.
	decideDurable = 60 * time.Millisecond
	storeTimeout  = time.Second // the limiter's default
)

func (f *decideFlags) bind(flags *pflag.FlagSet) {
	flags.DurationVar(&f.within, "decide-within", 0, "`DURATION` after which on_unavailable answers instead of the "+
		"store (default 60ms for disk and DynamoDB, otherwise 12ms)")
}

func (f *decideFlags) check() error {
	if f.within < 0 || f.within > storeTimeout {
		return kit.Usagef("--decide-within %s must be positive and at most %s", f.within, storeTimeout)
	}
	return nil
}

//nolint:unparam // a step of a part may fail
func (f *decideFlags) open(_ context.Context, s *serving) error {
	s.run.Config.DecideWithin = f.on(s.run.Store)
	return nil
}

// on returns how long a decision on a store may take.
func (f *decideFlags) on(address string) time.Duration {
	switch {
	case f.within > 0:
		return f.within
	case strings.HasPrefix(address, "disk:"), strings.HasPrefix(address, "dynamodb:"):
		return decideDurable
	}
	return decideFast
}
