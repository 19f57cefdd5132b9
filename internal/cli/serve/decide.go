package serve

import (
	"context"
	"strings"
	"time"
)

// decideFlags configure how long a decision may take.
type decideFlags struct {
	Within time.Duration `json:"decide_within" range:"0s..1s"`
}

// How long a decision may take by default. Envoy waits 20 ms unless it is configured to wait longer.
const (
	decideFast = 12 * time.Millisecond
	// decideDurable is for stores whose decisions may wait for a durable write: on disk, an entity's first decision
	// waits for two file writes; on DynamoDB, every decision waits for a round trip. With a shorter time, a busy disk
	// would be taken for a broken one.
	decideDurable = 60 * time.Millisecond
)

//nolint:unparam // a step of a part may fail
func (f *decideFlags) open(_ context.Context, s *serving) error {
	s.run.Config.DecideWithin = f.on(s.run.Store)
	return nil
}

// on returns how long a decision on a store may take.
func (f *decideFlags) on(address string) time.Duration {
	switch {
	case f.Within > 0:
		return f.Within
	case strings.HasPrefix(address, "disk:"), strings.HasPrefix(address, "dynamodb:"):
		return decideDurable
	}
	return decideFast
}
