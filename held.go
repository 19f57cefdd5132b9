package weir

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// Held is a lease in a form that can leave the process, for a server to hand to its client. Whoever has it can give its
// tokens back, so a server must authenticate it when it comes back.
type Held struct {
	ID        string       `json:"id"`        // unique per lease
	Seq       int          `json:"seq"`       // number of adjustments; each value is valid for one change
	Expires   time.Time    `json:"expires"`   // after this, the lease counts as committed
	Namespace string       `json:"namespace"` // the opaque id
	Entity    string       `json:"entity"`
	Resource  string       `json:"resource"`
	Charges   []HeldCharge `json:"charges"`         // every limit that applied
	Local     bool         `json:"local,omitempty"` // admitted from one process's share, while the store did not answer
}

// HeldCharge is what a held lease has spent of one limit of one entity.
type HeldCharge struct {
	Entity   string `json:"entity"`
	Limit    Limit  `json:"limit"`
	Override bool   `json:"override,omitempty"`
	LeftOut  bool   `json:"left_out,omitempty"` // in shadow, and would have refused: nothing is spent of it
	Tokens   int64  `json:"tokens"`
}

type heldLease struct {
	id      string
	seq     int
	expires time.Time
}

// change returns the id of the one change for which this sequence number is valid.
func (h *heldLease) change() string { return h.id + "#" + strconv.Itoa(h.seq) }

// heldElsewhere reports whether a change was not applied because the held lease was used elsewhere, or has expired.
func heldElsewhere(err error) bool {
	return errors.Is(err, ErrSettled) || errors.Is(err, ErrExpired)
}

// Hold turns the lease into one that its caller carries until expires, under an id that must be unique. A lease that is
// held already keeps its id and expiry: under two ids, it could be given back twice. If the lease has ended, the result
// has no id and cannot be resumed.
func (le *Lease) Hold(id string, expires time.Time) Held {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.held == nil {
		le.held = &heldLease{id: id, expires: expires}
	}
	return le.heldLocked()
}

// Held returns the current form of a lease that was held or resumed. After an Adjust it has another Seq, and the
// previous form is used up. After an Adjust whose outcome is unknown it has the same Seq, and is valid only if the
// change was not applied.
func (le *Lease) Held() Held {
	le.mu.Lock()
	defer le.mu.Unlock()
	return le.heldLocked()
}

func (le *Lease) heldLocked() Held {
	h := Held{Entity: le.plan.entity, Resource: le.plan.resource, Local: le.degraded != nil && le.degraded.local}
	if le.held != nil && le.ended == nil {
		h.ID, h.Seq, h.Expires = le.held.id, le.held.seq, le.held.expires
	}
	n := 0
	for i := range le.debits {
		n += len(le.debits[i].Charges)
	}
	if n > 0 {
		h.Charges = make([]HeldCharge, 0, n)
	}
	for i := range le.debits {
		h.Namespace = le.debits[i].Bucket.Namespace
		for _, c := range le.debits[i].Charges {
			h.Charges = append(h.Charges, HeldCharge{
				Entity: le.debits[i].Bucket.Entity, Limit: limitOf(c.Limit), Override: c.Limit.Override, LeftOut: c.Shadow, Tokens: c.Amount / 1000,
			})
		}
	}
	return h
}

// Resume returns the lease that was held. Its Adjust and Rollback are applied at most once, across all processes on the
// store: they return [ErrSettled] if this Seq was used before, and [ErrExpired] after Expires. Its Commit does no I/O
// and is not recorded. Resume does no I/O for the lease, and does not check whether the limits have changed since.
func (l *Limiter) Resume(ctx context.Context, h Held) (*Lease, error) {
	s, err := l.space(ctx, l.core.elapsed())
	if err != nil {
		return nil, err
	}
	if h.Namespace != "" && h.Namespace != s.id {
		return nil, configErr("lease", "belongs to another namespace")
	}
	if h.ID == "" || h.Expires.IsZero() || h.Seq < 0 {
		return nil, configErr("lease", "has no id, no expiry or a bad seq")
	}
	le := &Lease{lim: l, plan: &plan{space: s, entity: h.Entity, resource: h.Resource}, held: &heldLease{h.ID, h.Seq, h.Expires}}
	if len(h.Charges) == 0 {
		le.degraded = &degradation{reason: "nothing was spent"}
	} else if h.Local {
		le.degraded = &degradation{reason: "the store did not answer", local: true, elsewhere: true}
	}
	for _, c := range h.Charges {
		lim, err := c.Limit.validate()
		if err != nil {
			return nil, err
		}
		if c.Tokens < 0 || c.Tokens > clock.MaxLevel/1000 || c.LeftOut && c.Tokens > 0 {
			return nil, configErr("lease", "has a bad amount of %s: %d", lim.Name, c.Tokens)
		}
		b := store.Bucket{Namespace: s.id, Entity: c.Entity, Resource: h.Resource}
		at := slices.IndexFunc(le.debits, func(d store.Debit) bool { return d.Bucket == b })
		if at < 0 {
			at = len(le.debits)
			le.debits = append(le.debits, store.Debit{Bucket: b, Ref: new(store.Ref)})
		}
		stored := lim.stored(c.Override)
		le.debits[at].Charges = append(le.debits[at].Charges, store.Charge{Limit: &stored, Amount: c.Tokens * 1000, Shadow: c.LeftOut})
	}
	return le, nil
}
