package disk

import (
	"fmt"
	"slices"
)

// Mode determines what is durable when a take is answered.
type Mode string

const (
	// Ahead keeps the durable level of a bucket at or above its true level. Takes are answered from memory up to the
	// durable level, and one commit for all waiting buckets reserves the next stretch. A crash can only under-admit, by
	// at most one stretch per bucket, the larger of a tenth of the burst and one second of the rate, and by what was
	// given back without an ID.
	Ahead Mode = "ahead"
	// Always makes each debit durable before it is answered, with one commit for all that wait. A crash costs only what
	// was given back without an ID.
	Always Mode = "always"
	// Interval writes changes every [Config.Interval]. A crash forgets what was spent since the last write, and those
	// tokens are admitted again.
	Interval Mode = "interval"
	// Off writes buckets only when the store is closed. A crash forgets everything spent since the store was opened.
	Off Mode = "off"
)

// Modes lists the modes, the default first.
var Modes = []Mode{Ahead, Always, Interval, Off}

func (m Mode) check() error {
	if slices.Contains(Modes, m) {
		return nil
	}
	return fmt.Errorf("mode %q: want one of %v", string(m), Modes)
}

// waits reports whether an answer waits until its changes are durable.
func (m Mode) waits() bool { return m == Ahead || m == Always }
