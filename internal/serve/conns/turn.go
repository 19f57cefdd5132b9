package conns

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/serve/admission"
)

const (
	// maxTurn is how long a turn lasts at most: what works on longer may be waiting for something.
	maxTurn = 2 * time.Millisecond
	// shortTurn is after how long a turn is passed on between two requests of a connection.
	shortTurn = 200 * time.Microsecond
)

// turn lets a connection work on what was read from it: parse it, and begin requests.
type turn struct {
	of    atomic.Pointer[string] // who has it; nil: not taken
	began time.Time
	timed atomic.Bool // whether it ends in at most maxTurn
}

// newTurns returns the turns of connections, one for each two processors. They go around between the principals, and
// the connections of nobody. While a processor is idle, the runtime notices at once what arrives on the network;
// otherwise every 10 ms. So however much arrives on some connections, what arrives on others is noticed soon.
func newTurns() *admission.Slots {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return admission.Varying(func(bool) int { return n }, math.MaxInt)
}

// nobody is who has the turns of all connections that are not authenticated. No token can have this name.
var nobody = new("not authenticated")

func (c *Conn) takeTurn() {
	who := nobody
	if c.authenticated.Load() {
		who = c.holder.Load()
	}
	if c.l.turns.Take(context.Background(), *who, 1, patience) == 0 {
		return
	}
	c.turn.of.Store(who)
	c.turn.began = time.Now()
	if !c.turn.timed.Swap(true) {
		time.AfterFunc(maxTurn, func() {
			c.turn.timed.Store(false)
			c.endTurn()
		})
	}
}

// endTurn is idempotent.
func (c *Conn) endTurn() {
	if who := c.turn.of.Swap(nil); who != nil {
		c.l.turns.Free(*who)
	}
}

// Yield lets others go first if the connection has begun requests for a while: whoever begins a request for each of
// many that were read together calls it before each.
func (c *Conn) Yield() {
	if c != nil && c.turn.of.Load() != nil && time.Since(c.turn.began) > shortTurn {
		c.endTurn()
		c.takeTurn()
	}
}
