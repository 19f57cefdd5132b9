package weir

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/bucket"
	"github.com/weirlimits/weir/store"
)

// Held is a lease in a form that can leave the process, as a server hands it to its client. Whoever holds it can have
// its tokens given back, so it must be authenticated where it comes back in.
type Held struct {
	ID        string       `json:"id"`        // unique per lease
	Seq       int          `json:"seq"`       // how often it was adjusted; each is good for one change
	Expires   time.Time    `json:"expires"`   // after that it counts as committed
	Namespace string       `json:"namespace"` // the opaque id
	Entity    string       `json:"entity"`
	Resource  string       `json:"resource"`
	Charges   []HeldCharge `json:"charges"`         // every limit that applied
	Local     bool         `json:"local,omitempty"` // admitted while the store did not answer, from the share of one process
}

// HeldCharge is what a held lease has spent of one limit of one entity.
type HeldCharge struct {
	Entity   string `json:"entity"`
	Limit    Limit  `json:"limit"`
	Override bool   `json:"override,omitempty"`
	LeftOut  bool   `json:"left_out,omitempty"` // in shadow, and would have refused: nothing is ever spent of it
	Tokens   int64  `json:"tokens"`
}

type heldLease struct {
	id      string
	seq     int
	expires time.Time
}

// change names the one change that this sequence number is good for.
func (h *heldLease) change() string { return h.id + "#" + strconv.Itoa(h.seq) }

// heldElsewhere reports whether a change was not applied because somebody else had used or outlived the held lease.
func heldElsewhere(err error) bool {
	return errors.Is(err, ErrSettled) || errors.Is(err, ErrExpired)
}

// Hold returns the lease as the caller's to carry, under an id that is unique, until expires. A lease that is held
// already keeps its id and expiry: under two of them it could be given back twice. One that has ended has no id, and
// cannot be resumed.
func (le *Lease) Hold(id string, expires time.Time) Held {
	le.mu.Lock()
	defer le.mu.Unlock()
	if le.held == nil {
		le.held = &heldLease{id: id, expires: expires}
	}
	return le.heldLocked()
}

// Held returns a lease that was held or resumed as it is now: after an Adjust it has another Seq, and the one before
// is used up. After an Adjust whose outcome is unknown it has the same Seq, and is good only if that was not applied.
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

// Resume returns the lease that was held. Its Adjust and Rollback are applied at most once, across all processes on
// the store: [ErrSettled] when this Seq was used before, [ErrExpired] after Expires. Its Commit does no I/O and is not
// remembered. It does no I/O itself and does not ask whether the limits have changed since.
func (l *Limiter) Resume(ctx context.Context, h Held) (*Lease, error) {
	s, err := l.space(ctx, l.core.elapsed())
	if err != nil {
		return nil, err
	}
	if h.Namespace != "" && h.Namespace != s.id {
		return nil, configErr("lease", "is of another namespace")
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
		if c.Tokens < 0 || c.Tokens > bucket.MaxLevel/1000 || c.LeftOut && c.Tokens > 0 {
			return nil, configErr("lease", "holds a bad amount of %s: %d", lim.Name, c.Tokens)
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
