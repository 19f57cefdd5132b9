package decide

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/weirlimits/weir/internal/serve/conns"
)

// maxHeaders bounds what the headers of unfinished HTTP/1 requests hold in memory. A lease may need a quarter of a
// megabyte.
const maxHeaders = 16 << 20

// Bounded returns a listener that bounds connections by [Config.MaxConnections].
func (d *Decider) Bounded(ln net.Listener) *conns.Listener {
	return conns.Listen(ln, conns.Bounds{
		Authenticated: d.MaxConnections, Headers: conns.NewBudget(maxHeaders),
		Evicted: func() {
			d.overloads.Warn("too many connections: the oldest are closed", slog.Int("max", d.MaxConnections))
		},
	})
}

// maxReceive is how long it may take to receive a message.
const maxReceive = 20 * time.Second

// Receive returns the context of a request of c whose message is yet to be received, by a call to Received. It ends if
// that takes too long.
func Receive(ctx context.Context, c *Caller) context.Context {
	ctx, late := context.WithCancel(ctx)
	c.late = time.AfterFunc(maxReceive, late)
	return With(ctx, c)
}

// Received records that the message was received.
func (c *Caller) Received() {
	if c.late != nil {
		c.late.Stop()
	}
}
