// Package watch lets any number of people look at buckets live for the price of one: a [Poller] peeks at a bucket once
// a tick, however many watch it, and tells each of them what has changed.
package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/places"
)

// What errors.Is finds, besides the limiter's errors.
var (
	// ErrTooMany says that as many different buckets are watched as a poller looks at, or as it does for one token.
	ErrTooMany = errors.New("too many buckets are watched")
	// ErrClosed says that the poller was closed.
	ErrClosed = errors.New("the poller is closed")
)

// MaxKeys is how many different buckets a poller looks at: each costs a read of the store per tick.
const MaxKeys = 1000

// Key is what is watched: an entity on a resource. Namespace "" is the limiter's own.
type Key struct{ Namespace, Entity, Resource string }

// Poller looks at buckets for all who watch them. While nobody watches it does nothing. It is safe for concurrent use.
type Poller struct {
	lim   *weir.Limiter
	every time.Duration

	rooms *places.Places // of looks

	mu     sync.Mutex
	looks  map[Key]*look
	closed bool
	end    context.Context //nolint:containedctx // of the poller, which outlives every call
	close  context.CancelFunc
	runs   sync.WaitGroup
}

// look is a bucket that somebody watches.
type look struct {
	key      Key
	who      string         // watches it, and has one of their places taken for it
	watchers map[string]int // by who they are; under the poller's lock
	stop     context.CancelFunc
	now      atomic.Pointer[state]
}

// state is what was seen, or why nothing could be. It does not change.
type state struct {
	av   weir.Availability
	err  error
	seen bool
	next chan struct{} // closed when there is a newer one
}

// New returns a poller that looks at each bucket once in every; 0 means one second. The caller closes the poller before
// the limiter.
func New(lim *weir.Limiter, every time.Duration) *Poller {
	p := &Poller{lim: lim, every: cmp.Or(every, time.Second), looks: make(map[Key]*look), rooms: places.New(MaxKeys)}
	p.end, p.close = context.WithCancel(context.Background())
	return p
}

// Close ends all that watch, and waits until the store is left alone. It is idempotent.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.close()
	p.runs.Wait()
}

// Watch calls f with what the entity can spend on the resource now, as [weir.Limiter.Available] has it, then whenever
// that has changed, looking once a tick. If others watch already, now is the last tick. Whoever takes longer than a tick
// misses what was in between, and holds nobody up. f must not change what it is given: others see the same.
//
// Who is whose token asks, "" where nobody is told apart: one has no more than three buckets for each that could still be
// watched, so that others can, too.
//
// That time passes is no change: of a bucket that fills up and has not gained a whole token, f hears nothing.
//
// Watch ends, with the error, when ctx ends, when f returns one, or when there is none to be told: [ErrTooMany],
// [ErrClosed], those of [weir.Limiter.Available], store trouble among them.
func (p *Poller) Watch(ctx context.Context, who string, key Key, f func(weir.Availability) error) error {
	key.Namespace = cmp.Or(key.Namespace, p.lim.Namespace())
	lk, err := p.join(who, key)
	if err != nil {
		return err
	}
	defer p.leave(who, lk)
	for {
		st := lk.now.Load()
		switch {
		case st.err != nil:
			return st.err
		case ctx.Err() != nil:
			return ctx.Err()
		case p.end.Err() != nil:
			return ErrClosed
		case st.seen:
			if err := f(st.av); err != nil {
				return err
			}
		}
		select {
		case <-st.next:
		case <-ctx.Done():
			return ctx.Err()
		case <-p.end.Done():
			return ErrClosed
		}
	}
}

// join finds the look at a bucket, or begins one.
func (p *Poller) join(who string, key Key) (*look, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	lk := p.looks[key]
	if lk == nil {
		if !p.rooms.Try(who) {
			return nil, fmt.Errorf("%w: try again later", ErrTooMany)
		}
		var ctx context.Context
		lk = &look{key: key, who: who, watchers: make(map[string]int)}
		lk.now.Store(&state{next: make(chan struct{})})
		ctx, lk.stop = context.WithCancel(p.end)
		p.looks[key] = lk
		p.runs.Go(func() { p.run(ctx, lk) })
	}
	lk.watchers[who]++
	return lk, nil
}

// leave ends the look at a bucket when the last one leaves. Else it takes a place of one who stays.
func (p *Poller) leave(who string, lk *look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if lk.watchers[who]--; lk.watchers[who] > 0 {
		return
	}
	delete(lk.watchers, who)
	if len(lk.watchers) == 0 {
		lk.stop()
		p.forget(lk)
		return
	}
	if lk.who != who || p.looks[lk.key] != lk {
		return
	}
	p.rooms.Free(who)
	for lk.who = range lk.watchers {
		break
	}
	p.rooms.Force(lk.who)
}

// forget makes the next one who watches the bucket begin anew. The poller is locked.
func (p *Poller) forget(lk *look) {
	if p.looks[lk.key] == lk {
		delete(p.looks, lk.key)
		p.rooms.Free(lk.who)
	}
}

// run looks at a bucket until nobody watches it, or it cannot be looked at.
func (p *Poller) run(ctx context.Context, lk *look) {
	lim := p.lim.In(lk.key.Namespace)
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		av, err := lim.Available(ctx, lk.key.Entity, lk.key.Resource)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.mu.Lock()
			p.forget(lk)
			p.mu.Unlock()
			lk.tell(&state{err: err})
			return
		}
		if last := lk.now.Load(); !last.seen || changed(&last.av, &av) {
			lk.tell(&state{av: av, seen: true})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (lk *look) tell(st *state) {
	st.next = make(chan struct{})
	close(lk.now.Swap(st).next)
}

// changed reports whether there is more to tell than that time has passed.
func changed(from, to *weir.Availability) bool {
	if len(from.Statuses) != len(to.Statuses) {
		return true
	}
	for i := range to.Statuses {
		a, b := &from.Statuses[i], &to.Statuses[i]
		if a.Entity != b.Entity || a.Limit != b.Limit || a.Source != b.Source || a.Shadow != b.Shadow ||
			a.Amount != b.Amount || a.Period != b.Period || a.Burst != b.Burst || a.Available != b.Available {
			return true
		}
		if (a.Full == 0) != (b.Full == 0) || a.Full > 0 && !from.At.Add(a.Full).Equal(to.At.Add(b.Full)) {
			return true // something was spent or given back, if not a whole token
		}
	}
	return false
}
