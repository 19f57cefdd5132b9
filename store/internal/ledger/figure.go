package ledger

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirlimits/weir/store"
)

// Figure is one of [store.Figures].
type Figure uint8

// The figures, in the order of their fields. Peak is derived, not counted.
const (
	Requests Figure = iota
	Debited
	Returned
	Peak
	Refused
	RefusedTokens
	Adjustments
	Degraded
	WouldRefuse
	WouldTokens
	figures
)

// letters are the letters of the figures, in order.
const letters = "NDRPFTAGWV"

// Field returns the field of a figure.
func Field(f *store.Figures, fig Figure) *int64 {
	return [figures]*int64{
		&f.Requests, &f.Debited, &f.Returned, &f.Peak, &f.Refused, &f.RefusedTokens, &f.Adjustments, &f.Degraded,
		&f.WouldRefuse, &f.WouldTokens,
	}[fig]
}

// Letters calls f with the letter and the value of each figure that is not zero.
func Letters(c *store.Figures, f func(letter string, n int64)) {
	for fig := range figures {
		if n := *Field(c, fig); n != 0 {
			f(letters[fig:fig+1], n)
		}
	}
}

// AddLetter adds n to the figure of a letter of a limit. Letters of no figure are ignored.
func AddLetter(counts []store.LimitFigures, letter byte, limit string, n int64) []store.LimitFigures {
	fig := strings.IndexByte(letters, letter)
	if fig < 0 || n == 0 {
		return counts
	}
	return add(counts, limit, Figure(fig), n)
}

// add adds to a limit's figures, which are ordered by limit.
func add(counts []store.LimitFigures, limit string, f Figure, n int64) []store.LimitFigures {
	i, found := slices.BinarySearchFunc(counts, limit, func(c store.LimitFigures, l string) int {
		return cmp.Compare(c.Limit, l)
	})
	if !found {
		counts = slices.Insert(counts, i, store.LimitFigures{Limit: limit})
	}
	*Field(&counts[i].Figures, f) += n
	return counts
}
