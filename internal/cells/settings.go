package cells

import (
	"cmp"
	"fmt"
	"time"
)

// Mode says when shares that are raised count.
type Mode string

// The modes.
const (
	Strict    Mode = "strict"    // never above the limit: what is lowered is confirmed before anything is raised
	Available Mode = "available" // at once
)

// Weights say how a limit is divided.
type Weights string

// The weights.
const (
	Equal   Weights = "equal"   // the same for each cell
	Offered Weights = "offered" // by the requests that were offered lately, admitted or refused
)

// Settings hold for all cells of a registry. The zero value is that of the defaults.
type Settings struct {
	Mode    Mode    `json:"mode,omitempty"`    // Defaults to Strict
	Weights Weights `json:"weights,omitempty"` // Defaults to Equal
	// Floor is what percentage of the whole is divided equally in any case, so that a cell without traffic can admit the
	// first requests. Between 1 and 100; defaults to 10. Only for Offered.
	Floor int64 `json:"floor,omitempty"`
	// HalfLife is after how long a change of what is offered counts for half, and after twice as long in full. Between 1
	// s and 1 h; defaults to 30 s. Only for Offered.
	HalfLife time.Duration `json:"half_life,omitempty"`
}

// WithDefaults returns the settings with what is not set filled in.
func (s Settings) WithDefaults() Settings {
	s.Mode = cmp.Or(s.Mode, Strict)
	s.Weights = cmp.Or(s.Weights, Equal)
	s.Floor = cmp.Or(s.Floor, 10)
	s.HalfLife = cmp.Or(s.HalfLife, 30*time.Second)
	return s
}

// Check returns what is wrong with settings, which have their defaults.
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
