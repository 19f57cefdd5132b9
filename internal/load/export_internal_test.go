package load

import (
	"net/http"
	"time"
)

// Through has the target send its requests by rt, for virtual time, in which nobody can wait for a socket.
func (t *HTTP) Through(rt http.RoundTripper) { t.client.Transport = rt }

// Draw makes n calls of an open loop, the i-th at when(i).
func (p *Plan) Draw(n int, when func(i int) time.Duration, each func(c *Call)) {
	d := p.drawer()
	var c Call
	for i := range n {
		d.nth(uint64(i), when(i), &c)
		each(&c)
	}
}

// At is when the n-th call is due.
func (p *Plan) At(n uint64) time.Duration { return p.schedule.at(n) }

// UsersAt is how many users there are.
func (p *Plan) UsersAt(t time.Duration) float64 { return p.curve.at(t) }
