// Package hold keeps what is held of limits of slots in items of DynamoDB.
//
// An update cannot assert a sum of attributes. So an item has, for each such limit, the total beside its two cohorts:
// the total, if neither cohort is dead, is what both hold together. Most writes assert the ends of the cohorts, and how
// much there is at most of the total or at least of a cohort, and add to them. They then succeed beside those of other
// processes.
package hold

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/clock/slots"
)

// Skew is how far each process's clock is from true time at most, in nanoseconds.
const Skew = int64(2 * time.Second)

// Birth is the attribute that identifies what the item has counted of all its limits of slots without a gap.
const Birth = "hb"

// Prefixes of a limit's attributes.
const (
	prefixEnds  = "E_" // when the cohorts end: "current/previous"
	prefixTotal = "H_"
	prefixCur   = "C_" // of the current cohort
	prefixPrev  = "O_" // of the previous one
)

// Attrs are the names of a limit's attributes.
type Attrs struct{ ends, total, cur, prev string }

// AttrsOf returns the attributes of the limit of a name, as in the names of attributes.
func AttrsOf(name string) Attrs {
	return Attrs{prefixEnds + name, prefixTotal + name, prefixCur + name, prefixPrev + name}
}

// Is reports whether a prefix is that of an attribute of this package.
func Is(prefix string) bool {
	return prefix == prefixEnds || prefix == prefixTotal || prefix == prefixCur || prefix == prefixPrev
}

// Put decodes an attribute, given its prefix.
func Put(h *slots.Held, prefix string, v expr.Value) (err error) {
	switch prefix {
	case prefixCur:
		h.Cur, err = v.AsInt()
	case prefixPrev:
		h.Prev, err = v.AsInt()
	case prefixTotal:
		_, err = v.AsInt()
	default:
		var text string
		if text, err = v.AsText(); err != nil {
			return err
		}
		cur, prev, _ := strings.Cut(text, "/")
		var bad error
		h.End, err = strconv.ParseInt(cur, 10, 64)
		h.PrevEnd, bad = strconv.ParseInt(prev, 10, 64)
		if err != nil || bad != nil {
			err = fmt.Errorf("%q are not the ends of two cohorts", text)
		}
	}
	return err
}

func ends(h slots.Held) string {
	return strconv.FormatInt(h.End, 10) + "/" + strconv.FormatInt(h.PrevEnd, 10)
}

// Alive reports whether some of the slots may be held at a time.
func Alive(h slots.Held, now int64) bool { return h.End > now-Skew }

// Change is what a write makes of a limit of slots.
type Change struct {
	From, To slots.Held
	Exact    bool // the change holds only for what From shows
	New      bool // something else asserts that the item does not have the limit
	Asserted bool // something else asserts that nothing has changed since From was seen
}

// Any reports whether the change is one.
func (c *Change) Any() bool { return c.To != c.From }

// Write adds the change to an update at a time. If it is bounded, it asserts that the total is at most so much before.
func (c *Change) Write(u *expr.Update, a *Attrs, now, most int64, bounded bool) {
	if !c.Any() && !bounded {
		return
	}
	c.assert(u, a)
	was := c.From.At(now, Skew)
	same := c.From.End != 0 && c.To.End == c.From.End && c.To.PrevEnd == c.From.PrevEnd
	adds := same && !c.Exact && was == c.From
	if bounded && (!adds || c.Asserted) && was.Total() > most {
		u.Op(expr.Absent, expr.Key) // it does not fit, and is sent only to see what the item is like now
	}
	if adds {
		cur, prev := c.To.Cur-c.From.Cur, c.To.Prev-c.From.Prev
		if bounded && !c.Asserted {
			u.Op(expr.AtMost, a.total, most)
		}
		c.add(u, a.cur, cur)
		c.add(u, a.prev, prev)
		if cur+prev != 0 {
			u.Op(expr.Add, a.total, cur+prev)
		}
		return
	}
	if c.From.End > now-Skew && !c.Asserted {
		u.Op(expr.Equal, a.cur, c.From.Cur)
	}
	if c.From.PrevEnd > now-Skew && !c.Asserted {
		u.Op(expr.Equal, a.prev, c.From.Prev)
	}
	if c.Any() {
		u.OpText(expr.Set, a.ends, ends(c.To))
		u.Op(expr.Set, a.cur, c.To.Cur)
		if c.From.End != 0 { // otherwise it is 0, and an update may have only so many changes
			u.Op(expr.Set, a.prev, c.To.Prev)
		}
		u.Op(expr.Set, a.total, c.To.Total())
	}
}

// add adds to a cohort, which must not fall below zero.
func (c *Change) add(u *expr.Update, attr string, n int64) {
	if n < 0 && !c.Asserted {
		u.Op(expr.AtLeast, attr, -n)
	}
	if n != 0 {
		u.Op(expr.Add, attr, n)
	}
}

// assert asserts that the cohorts are those that were seen. While they are, the previous one never grows.
func (c *Change) assert(u *expr.Update, a *Attrs) {
	switch {
	case c.New, c.Asserted:
	case c.From == (slots.Held{}):
		u.Op(expr.Absent, a.ends)
	default:
		u.OpText(expr.Equal, a.ends, ends(c.From))
	}
}

// Remove adds to an update that it removes a limit of which nothing is held, as seen.
func Remove(u *expr.Update, name string, seen slots.Held) {
	a, c := AttrsOf(name), Change{From: seen}
	c.assert(u, &a)
	for _, attr := range []string{a.ends, a.total, a.cur, a.prev} {
		u.Op(expr.Remove, attr)
	}
}
