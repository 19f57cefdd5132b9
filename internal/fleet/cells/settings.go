package cells

import (
	"cmp"
	"fmt"
	"time"
)

// Mode determines when raised shares take effect.
type Mode string

// Modes.
const (
	Strict    Mode = "strict"    // never above the limit: lowered shares are confirmed before others are raised
	Available Mode = "available" // at once
)

// Weights determine how a limit is divided.
type Weights string

// Weights.
const (
	Equal   Weights = "equal"   // the same for each cell
	Offered Weights = "offered" // in proportion to recently offered requests, admitted or refused
)

// Settings apply to all cells of a registry. The zero value means all defaults.
type Settings struct {
	Mode    Mode    `json:"mode,omitempty"`    // Defaults to Strict
	Weights Weights `json:"weights,omitempty"` // Defaults to Equal
	// Floor is the percentage of the whole that is always divided equally, so that a cell without traffic can admit its
	// first requests. Between 1 and 100; defaults to 10. Only for Offered.
	Floor int64 `json:"floor,omitempty"`
	// HalfLife is the time after which a change of the offered load counts for half; after twice as long it counts in
	// full. Between 1 s and 1 h; defaults to 30 s. Only for Offered.
	HalfLife time.Duration `json:"half_life,omitempty"`
}

// WithDefaults returns the settings with defaults for those not set.
func (s Settings) WithDefaults() Settings {
	s.Mode = cmp.Or(s.Mode, Strict)
	s.Weights = cmp.Or(s.Weights, Equal)
	s.Floor = cmp.Or(s.Floor, 10)
	s.HalfLife = cmp.Or(s.HalfLife, 30*time.Second)
	return s
}

// Check returns an error if settings with defaults filled in are invalid.
func (s Settings) Check() error {
	switch {
	case s.Mode != Strict && s.Mode != Available:
		return fmt.Errorf("mode %q is neither strict nor available", s.Mode)
	case s.Weights != Equal && s.Weights != Offered:
		return fmt.Errorf("weights %q are neither equal nor offered", s.Weights)
	case s.Floor < 1 || s.Floor > 100:
		return fmt.Errorf("floor %d%% is not between 1%% and 100%%", s.Floor)
	case s.HalfLife < time.Second || s.HalfLife > time.Hour:
		return fmt.Errorf("half-life %s is not between 1s and 1h", s.HalfLife)
	}
	return nil
}
