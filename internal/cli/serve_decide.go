package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// decideFlags say how long a decision may take.
type decideFlags struct{ within time.Duration }

// How long a decision may take unless something else is said. Envoy waits for 20 ms, unless it is told to wait longer.
const (
	decideFast = 12 * time.Millisecond
	// decideDurable is for stores whose decisions may wait for something to be durable: an entity's first on disk for
	// two writes of the file, all on DynamoDB for a round trip. With less, a busy disk would be taken for a broken one.
	decideDurable = 60 * time.Millisecond
	storeTimeout  = time.Second // of the limiter
)

func (f *decideFlags) bind(flags *pflag.FlagSet) {
	flags.DurationVar(&f.within, "decide-within", 0, "`DURATION` after which on_unavailable answers instead of the store; not set: 60ms, in memory: 12ms")
}

func (f *decideFlags) check() error {
	if f.within < 0 || f.within > storeTimeout {
		return usageError{fmt.Errorf("--decide-within %s must be at most %s, and positive", f.within, storeTimeout)}
	}
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
