package load

import (
	"context"
	"net/http"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Through makes the target send its requests through rt. Virtual time needs this because a bubble cannot wait for sockets.
func (t *HTTP) Through(rt http.RoundTripper) { t.client.Transport = rt }

// Merged merges the tallies of the parts of a run.
func Merged(p *traffic.Plan, parts ...*Tally) *Tally {
	t := newTally(p)
	for _, part := range parts {
		t.merge(part)
	}
	return t
}

// Nothing answers at once and admits everything, so that a run measures the runner itself.
type Nothing struct{}

// Acquire implements [Target].
func (Nothing) Acquire(context.Context, *traffic.Call) (Held, error) { return Nothing{}, nil }

// Available implements [Target].
func (Nothing) Available(context.Context, *traffic.Call) error { return nil }

// Slots implements [Held].
func (Nothing) Slots() Slots { return Slots{} }

// Commit implements [Held].
func (Nothing) Commit(context.Context) error { return nil }

// Adjust implements [Held].
func (Nothing) Adjust(context.Context, weir.Tokens) ([]weir.Balance, error) { return nil, nil }
