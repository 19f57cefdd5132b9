package manifest

import (
	"cmp"
	"math/bits"

	"github.com/weirlimits/weir"
)

// Moves is the direction in which a change moves admission.
type Moves string

// The directions.
const (
	Same     Moves = ""         // no change
	Loosens  Moves = "loosens"  // admits more, never less
	Tightens Moves = "tightens" // admits less, never more
	Both     Moves = "both"     // admits more in one way and less in another
)

// and combines two directions.
func (m Moves) and(o Moves) Moves {
	switch {
	case m == o || o == Same:
		return m
	case m == Same:
		return o
	}
	return Both
}

// inverse returns the opposite direction.
func (m Moves) inverse() Moves {
	switch m {
	case Loosens:
		return Tightens
	case Tightens:
		return Loosens
	case Same, Both:
	}
	return m
}

// way returns the direction of more (c > 0) or fewer (c < 0) tokens.
func way(c int) Moves {
	switch {
	case c > 0:
		return Loosens
	case c < 0:
		return Tightens
	}
	return Same
}

// rate compares what two limits issue over time.
func rate(a, b weir.Limit) int {
	ah, al := bits.Mul64(uint64(a.Amount), uint64(b.Period))
	bh, bl := bits.Mul64(uint64(b.Amount), uint64(a.Period))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// movesOf returns the direction of replacing one set of limits by another. A limit that is missing or in shadow
// refuses nothing; without any limits, a request is an error.
func movesOf(before, after []weir.Limit) (m Moves) {
	switch {
	case len(before) == 0 && len(after) == 0:
		return Same
	case len(before) == 0:
		return Loosens
	case len(after) == 0:
		return Tightens
	}
	for b, a := range pairs(before, after) {
		m = m.and(moveOf(b, a))
	}
	return m
}

func moveOf(b, a weir.Limit) Moves {
	is := way(cmp.Compare(share(b), share(a)))
	if share(a) == 0 || share(b) == 0 {
		return is
	}
	return is.and(way(rate(a, b))).and(way(cmp.Compare(a.Burst, b.Burst)))
}
