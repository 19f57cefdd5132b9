package decide

import (
	"context"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/auth"
)

// Caller is who makes a request, and the slot that the request holds among those that run, wait or stream. A request
// has its own Caller, which only one goroutine uses at a time.
type Caller struct {
	*auth.Principal
	// Role is what the route requires in the namespace that the request names.
	Role auth.Role

	slots, extra *admission.Slots // those of which the request holds one
}

type callerKey struct{}

// With returns the context of a request that c makes.
func With(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns who makes a request, or a caller without any permission if the context has none.
func CallerOf(ctx context.Context) *Caller {
	if c, ok := ctx.Value(callerKey{}).(*Caller); ok {
		return c
	}
	return &Caller{}
}

// maxQueued is how long a request waits for a slot. By then a burst is over; if the server cannot keep up, the client
// should learn of it at once.
const maxQueued = 100 * time.Millisecond

// Begin takes a slot among the running requests, unless the caller has one.
func (d *Decider) Begin(ctx context.Context, c *Caller) error {
	if c.slots != nil {
		return nil
	}
	if !d.running.Take(ctx, c.name(), maxQueued) {
		return ErrOverloaded
	}
	c.slots = d.running
	return nil
}

// Stream moves the request to the streams, which do not count as running.
func (d *Decider) Stream(c *Caller) error { return c.move(d.streaming) }

// Join takes an extra slot among slots. The caller keeps the one that it has.
func (c *Caller) Join(ctx context.Context, slots *admission.Slots) error {
	if !slots.Take(ctx, c.name(), maxQueued) {
		return ErrOverloaded
	}
	c.extra = slots
	return nil
}

// End returns the slots of the request. It is idempotent.
func (c *Caller) End() {
	for _, held := range []**admission.Slots{&c.slots, &c.extra} {
		if *held != nil {
			(*held).Free(c.name())
			*held = nil
		}
	}
}

// move exchanges the slot for one among others.
func (c *Caller) move(to *admission.Slots) error {
	if c.slots == to {
		return nil
	}
	if !to.Try(c.name()) {
		return ErrOverloaded
	}
	c.End()
	c.slots = to
	return nil
}

func (c *Caller) name() string {
	if c.Principal == nil {
		return anonymous
	}
	return c.Name
}

// anonymous is the name under which all callers without a token are counted. No token can have this name.
const anonymous = "no token"
