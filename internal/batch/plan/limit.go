package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimits/weir/internal/batch/limitname"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// View is the limits of a debit as an item spells them. It is immutable.
type View struct {
	Limits []*store.Limit
	Names  []string // as in the names of attributes
	Params []clock.Params
	Own    bool   // some are the bucket's own, not overrides
	Slots  bool   // some are limits of slots
	Set    string // identifies the own ones: equal for equal names and parameters, in any order

	attrs []limitAttrs
}

// limitAttrs are the names of a limit's attributes that a debit writes.
type limitAttrs struct {
	level, debited, returned string
}

// NewView returns the view of some charges. Errors: store.ErrInvalid if a limit exceeds the bounds of the arithmetic.
func NewView(charges []store.Charge) (*View, error) {
	v := &View{
		Limits: make([]*store.Limit, len(charges)), Names: make([]string, len(charges)),
		attrs: make([]limitAttrs, len(charges)), Params: make([]clock.Params, len(charges)),
	}
	var own []string
	for i := range charges {
		l := charges[i].Limit
		p := l.Params()
		if l.Override && (l.IsBalance() || l.IsSlots()) {
			return nil, fmt.Errorf("%w: limit %q: a request cannot bring a balance or slots", store.ErrInvalid, l.Name)
		}
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("%w: limit %q: %s %s", store.ErrInvalid, l.Name, err.Field, err.Reason)
		}
		name := limitname.Of(l)
		v.Limits[i], v.Names[i], v.Params[i] = l, name, p
		a := &v.attrs[i]
		a.level, a.debited, a.returned = prefixLevel+name, prefixDebited+name, prefixReturned+name
		v.Slots = v.Slots || l.IsSlots()
		if !l.Override {
			v.Own = true
			own = append(own, v.Names[i]+"="+limitname.Format(p))
		}
	}
	if v.Own {
		slices.Sort(own)
		sum := sha256.Sum256([]byte(strings.Join(slices.Compact(own), "\n")))
		v.Set = base64.RawStdEncoding.EncodeToString(sum[:9])
	}
	return v, nil
}

// Of reports whether v is the view of charges.
func (v *View) Of(charges []store.Charge) bool {
	return slices.EqualFunc(v.Limits, charges, func(l *store.Limit, c store.Charge) bool {
		return c.Limit == l || *c.Limit == *l
	})
}
