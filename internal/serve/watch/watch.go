// Package watch lets any number of clients watch buckets live at the cost of one: a [Poller] reads a bucket once per
// tick, however many clients watch it, and reports changes to each of them.
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
	"github.com/weirlimits/weir/internal/serve/admission"
)

// The errors that errors.Is finds, besides the limiter's.
var (
	// ErrTooMany reports that the maximum number of different buckets is being watched, in total or for one token.
	ErrTooMany = errors.New("too many different buckets are watched")
	// ErrClosed reports that the poller was closed.
	ErrClosed = errors.New("the poller is closed")
)

// MaxKeys is how many different buckets a poller can watch. Each costs one read of the store per tick.
const MaxKeys = 1000

// Key is what is watched: an entity on a resource. Namespace "" is the limiter's own.
type Key struct{ Namespace, Entity, Resource string }

// Poller reads buckets for everyone who watches them. While nobody watches, it does nothing. It is safe for
// concurrent use.
type Poller struct {
	lim *weir.Limiter

	slots *admission.Slots // one per look

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
	who      string         // the watcher whose slot the look uses
	watchers map[string]int // by identity; guarded by the poller's lock
	stop     context.CancelFunc
	now      atomic.Pointer[state]
}

// state is the last reading, or why there is none. It is immutable.
type state struct {
	av   weir.Availability
	err  error
	seen bool
	next chan struct{} // closed when there is a newer one
}

// New returns a poller that reads each bucket once per second. Close the poller before the limiter.
func New(lim *weir.Limiter) *Poller {
	p := &Poller{lim: lim, looks: make(map[Key]*look), slots: admission.New(MaxKeys)}
	p.end, p.close = context.WithCancel(context.Background())
	return p
}

// Close ends all watches, and waits until the store is no longer used. It is idempotent.
func (p *Poller) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.close()
	p.runs.Wait()
}

// Watch calls f with what the entity can spend on the resource now, as [weir.Limiter.Available] returns it, and again
// whenever that has changed, checking once per tick. If others are watching already, now is the last tick. If f takes
// longer than a tick, it misses intermediate states, but delays nobody. f must not modify its argument, which is
// shared.
//
// who identifies the caller's token, or is "" if callers are not distinguished. A caller can watch at most three
// buckets for each that could still be watched, so that others can, too.
//
// The passing of time is not a change: f is not called for a bucket that is filling up but has not gained a whole
// token.
//
// Watch ends with an error: when ctx is done, when f returns one, or with [ErrTooMany], [ErrClosed] or an error of
// [weir.Limiter.Available], such as a store failure.
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

// join finds the look at a bucket, or starts one.
func (p *Poller) join(who string, key Key) (*look, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	lk := p.looks[key]
	if lk == nil {
		if !p.slots.Try(who) {
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

// leave ends the look at a bucket when its last watcher leaves. Otherwise it moves the slot to a remaining watcher.
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
	p.slots.Free(who)
	for lk.who = range lk.watchers {
		break
	}
	p.slots.Force(lk.who)
}

// forget makes the next watcher of the bucket start a new look. The poller is locked.
func (p *Poller) forget(lk *look) {
	if p.looks[lk.key] == lk {
		delete(p.looks, lk.key)
		p.slots.Free(lk.who)
	}
}

// run reads a bucket until nobody watches it, or it cannot be read.
func (p *Poller) run(ctx context.Context, lk *look) {
	lim := p.lim.In(lk.key.Namespace)
	tick := time.NewTicker(time.Second)
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

// changed reports whether more has changed than the time.
func changed(from, to *weir.Availability) bool {
	if len(from.Statuses) != len(to.Statuses) {
		return true
	}
	for i := range to.Statuses {
		a, b := &from.Statuses[i], &to.Statuses[i]
		if a.Entity != b.Entity || a.Limit != b.Limit || a.Source != b.Source || a.Shadow != b.Shadow ||
			a.Amount != b.Amount || a.Period != b.Period || a.Window != b.Window || a.Heal != b.Heal ||
			a.Burst != b.Burst || a.Available != b.Available {
			return true
		}
		if (a.Full == 0) != (b.Full == 0) || a.Full > 0 && !from.At.Add(a.Full).Equal(to.At.Add(b.Full)) {
			return true // something was spent or returned, though less than a whole token
		}
		if b.Ends > 0 && !from.At.Add(a.Ends).Equal(to.At.Add(b.Ends)) {
			return true // the next window has begun, or held slots were renewed
		}
	}
	return false
}
