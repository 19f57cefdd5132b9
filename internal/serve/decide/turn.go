package decide

import (
	"context"
	"runtime"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/outage"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/admission"
)

const (
	// What a call with its decision costs a processor of this machine, and a store that makes one call at a time, at
	// least: more calls at once only wait for each other.
	perProcessor, inStore = 50 * time.Microsecond, 15 * time.Microsecond
	// leastAtOnce keeps a store on the same machine busy, mostAtOnce is as many connections as a client keeps.
	leastAtOnce, mostAtOnce = 32, 1024
	// inBatch is for how many calls that of a decision in a batch counts: the next hundreds follow at once, so whoever
	// else calls finds as many ahead as there can be.
	inBatch = 2
)

// atOnce returns how many calls of requests a store is given at once, by its shortest round trip. They are as many as
// this machine and the store work off during a round trip: a call that finds them all ahead of it is answered about one
// round trip later. If a single namespace and token calls, or the round trip is not known, as many as possible are.
func atOnce(trip time.Duration, alone bool) int {
	if trip == 0 || alone {
		return mostAtOnce
	}
	perCall := max(inStore, perProcessor/time.Duration(runtime.GOMAXPROCS(0)))
	return max(leastAtOnce, min(int(trip/perCall), mostAtOnce))
}

// shared returns how decisions, and whatever else requests need of the store, take turns to call it: by namespace and
// token. So a burst of one waits behind its own calls, and others find room, or are the next to call. At most queue
// calls of each wait.
func shared(lim *weir.Limiter, queue int) parts.Enter {
	p := parts.Of(lim)
	slots := admission.Varying(func(alone bool) int { return atOnce(p.Trips.Shortest(), alone) }, queue)
	return func(ctx context.Context, namespace string, n int) (leave func(), err error) {
		who := namespace + "\x00" + CallerOf(ctx).name()
		if outage.Batched(ctx) {
			n *= inBatch
		}
		if n = slots.Take(ctx, who, n, patience(p.Within.Get())); n > 0 {
			return func() { slots.Return(who, n) }, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, ErrOverloaded
	}
}

// patience returns how long a call waits for its turn. If the store stops answering, it is not called any more after
// four times the time that decisions may take: those that wait are then answered without it.
func patience(within time.Duration) time.Duration { return max(maxQueued, 5*within) }
