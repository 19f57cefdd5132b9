package load

import (
	"net/http"
	"time"
)

// Through makes the target send its requests through rt. Virtual time needs this because a bubble cannot wait for sockets.
func (t *HTTP) Through(rt http.RoundTripper) { t.client.Transport = rt }

// Draw draws the first n calls of an open loop, the i-th at when(i).
func (p *Plan) Draw(n int, when func(i int) time.Duration, each func(c *Call)) {
	d := newDrawer(p)
	var c Call
	for i := range n {
		d.nth(uint64(i), when(i), &c)
		each(&c)
	}
}

// At returns when the n-th call is due.
func (p *Plan) At(n uint64) time.Duration { return p.schedule.at(n) }

// UsersAt returns the number of users at a time.
func (p *Plan) UsersAt(t time.Duration) float64 { return p.curve.at(t) }
