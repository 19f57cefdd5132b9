package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// guard keeps a store from deciding while a server evicts keys. It looks at the servers' settings after each new
// connection and once a minute, beside the decisions. After a look that failed, it looks again after 10 ms, then after
// twice that, up to five times, and from then on once a second and after each new connection.
type guard struct {
	wrong  atomic.Pointer[store.Error]
	found  map[string]*store.Error // by server, at its last answer; only for right
	dialed chan struct{}
	ended  context.CancelFunc
	done   sync.WaitGroup
}

// How often the settings are looked at: usually, and while they are wrong or cannot be read. A server that has just
// taken over may answer a few milliseconds after it accepts connections.
const (
	lookEvery = time.Minute
	lookAgain = time.Second
	lookFirst = 10 * time.Millisecond // after a new connection and a look that failed
	lookGrows = 16 * lookFirst
)

// look makes the guard look soon. It does not block.
func (g *guard) look() {
	select {
	case g.dialed <- struct{}{}:
	default:
	}
}

// check returns the error if the store must not decide.
func (g *guard) check() error {
	if wrong := g.wrong.Load(); wrong != nil {
		return wrong
	}
	return nil
}

// close ends the guard.
func (g *guard) close() {
	if g.ended != nil {
		g.ended()
	}
	g.done.Wait()
}

// watch starts the guard. look looks at the settings, and reports whether all were read and are right.
func (g *guard) watch(every time.Duration, look func(context.Context) bool) {
	var ctx context.Context
	ctx, g.ended = context.WithCancel(context.Background())
	g.done.Go(func() {
		again := lookFirst
		for pause, dialed := every, g.dialed; ; {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-dialed:
				again = lookFirst
				timer.Stop()
			case <-timer.C:
			}
			if pause, dialed = every, g.dialed; look(ctx) {
				continue
			}
			select {
			case <-g.dialed: // the look itself may have dialed, in vain
			default:
			}
			if pause = min(every, lookAgain); again <= lookGrows {
				pause, dialed, again = min(every, again), nil, 2*again
			}
		}
	})
}

// right reads the settings of all servers, and reports whether all were read and are right. If a server does not
// answer, what was found on it before counts; if it refuses to answer, the store must not decide.
func (g *guard) right(ctx context.Context, s *server) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	found, right := make(map[string]*store.Error), true
	var wrong *store.Error
	for _, one := range settings.Read(ctx, *s.client.Load(), s.cluster, false) {
		e := &store.Error{
			Op: "take", Key: s.where(), Err: one.Err, Hint: settings.Hint(one.Err), Extent: store.ExtentStore,
		}
		switch f := one.Eviction(); {
		case one.Err != nil && settings.Answer(one.Err) == "":
			e, right = g.found[one.Addr], false
		case one.Err == nil && f.Err == nil:
			e = nil
		case one.Err == nil:
			e.Err, e.Hint = f.Err, f.Hint
		}
		if e != nil {
			found[one.Addr], wrong, right = e, e, false
		}
	}
	g.found = found
	g.wrong.Store(wrong)
	return right
}
