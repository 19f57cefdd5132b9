package decide

import (
	"context"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/admission"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/conns"
)

// Caller is who makes a request, and the slot that the request holds among those that run, wait or stream. A request
// has its own Caller, which only one goroutine uses at a time.
type Caller struct {
	*auth.Principal
	// Role is what the route requires in the namespace that the request names.
	Role auth.Role

	// Err and RefusedBy are why the request was refused, for the request log, if its answer is no error.
	Err       error
	RefusedBy string

	// Unsent takes back what nobody gets if the answer is not sent; nil: nothing.
	Unsent func()

	// Conn is the connection. It may be nil.
	Conn *conns.Conn

	held         conns.Hold       // memory; see Reserve
	slots, extra *admission.Slots // those of which the request holds one
	leave        func()           // ends its turn to call the store; nil if it has none
	late         *time.Timer      // ends the request if its message is not received; nil if it has none
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

// freeHeld are the bytes of a request and its answer that are not counted: no more than its connection holds anyway.
const freeHeld = 4 << 10

// Reserve adds bytes to what the request holds in memory until it ends. It waits for room as long as patience. If there
// is none, it returns false and adds nothing. The first call of a request must have returned before the next.
func (d *Decider) Reserve(ctx context.Context, c *Caller, bytes int, patience time.Duration) bool {
	if c.held.Budget == nil {
		c.held.Budget, c.held.Free = d.Held, freeHeld
	}
	if bytes <= 0 || c.held.Add(ctx, c.name(), bytes, patience) {
		return true
	}
	c.held.Sub(bytes)
	return false
}

// Begin takes a slot among the running requests, unless the caller has one.
func (d *Decider) Begin(ctx context.Context, c *Caller) error {
	if c.slots != nil {
		return nil
	}
	if d.running.Take(ctx, c.name(), 1, maxQueued) == 0 {
		return ErrOverloaded
	}
	c.slots = d.running
	return nil
}

// Stream moves the request to the streams, which do not count as running.
func (d *Decider) Stream(c *Caller) error { return c.move(d.streaming) }

// Turn waits until a request that is no decision may call the store for its limiter. It then may until the request ends
// or calls Leave. Decisions wait for their turns by themselves, so they must not be made meanwhile.
func (d *Decider) Turn(ctx context.Context, c *Caller, lim *weir.Limiter) (err error) {
	p := parts.Of(lim)
	if p.Outage == nil { // the store never waits
		return nil
	}
	c.endTurn()
	c.leave, err = p.Gate.Enter(ctx, lim.Namespace(), 1)
	return err
}

func (c *Caller) endTurn() {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// Leave ends the turn of Turn, and returns the slot of Join: for a request of which only the answer is left, which its
// client may take its time to read.
func (c *Caller) Leave() {
	c.endTurn()
	if c.extra != nil {
		c.extra.Free(c.name())
		c.extra = nil
	}
}

// Join takes an extra slot among slots. The caller keeps the one that it has.
func (c *Caller) Join(ctx context.Context, slots *admission.Slots) error {
	if slots.Take(ctx, c.name(), 1, maxQueued) == 0 {
		return ErrOverloaded
	}
	c.extra = slots
	return nil
}

// End returns the slots and the memory of the request, and ends its turn. It is idempotent.
func (c *Caller) End() {
	c.free()
	c.held.Close()
}

// free returns the slots, and ends the turn.
func (c *Caller) free() {
	c.Leave()
	if c.slots != nil {
		c.slots.Free(c.name())
		c.slots = nil
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
	c.free()
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
