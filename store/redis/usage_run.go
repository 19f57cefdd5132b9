package redis

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimits/weir/store/redis/internal/script"
)

// readerLease is for how long an unresponsive reader blocks the others.
const readerLease = 30 * time.Second

// Run makes passes until ctx ends, which is not an error. One pass begins at each full hour, others about every so
// often (10 s if every is 0), or less often if they would otherwise take more than a thirtieth of the time. If several
// ledgers run, a lease selects one to make the passes; another takes over within 30 s of its end. Anything that could
// not be read is logged to log.
func (l *Ledger) Run(ctx context.Context, every time.Duration, log *slog.Logger) error {
	if every <= 0 {
		every = 10 * time.Second
	}
	owner := rand.Text()
	defer l.leave(ctx, owner)
	for first := true; ; first = false {
		took, err := l.turn(ctx, owner, log)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			log.LogAttrs(ctx, slog.LevelError, "read usage", slog.String("error", err.Error()))
		}
		t := time.NewTimer(l.pause(every, took, time.Now()))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

// Once makes one pass, unless another reader holds the lease. Anything that could not be read is logged to log.
func (l *Ledger) Once(ctx context.Context, log *slog.Logger) error {
	owner := rand.Text()
	defer l.leave(ctx, owner)
	_, err := l.turn(ctx, owner, log)
	return err
}

// leave gives up the lease, so that others need not wait.
func (l *Ledger) leave(ctx context.Context, owner string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.s.cfg.CallTimeout)
	defer cancel()
	_, _ = l.lease(ctx, owner, 0) // otherwise the lease expires
}

// turn makes a pass if this reader gets the lease, and returns how long it took.
func (l *Ledger) turn(ctx context.Context, owner string, log *slog.Logger) (took time.Duration, err error) {
	began := time.Now()
	mine, err := l.lease(ctx, owner, readerLease)
	if err != nil || !mine {
		return 0, err
	}
	over := make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() { l.hold(ctx, owner, over) })
	p, err := l.Pass(ctx)
	close(over)
	holding.Wait()
	for _, bad := range p.Bad {
		log.LogAttrs(ctx, slog.LevelError, "not counted", slog.String("error", bad.Error()))
	}
	if p.Apart > 0 {
		log.LogAttrs(
			ctx, slog.LevelWarn,
			"usage was not read for longer than buckets are kept: what expired buckets had counted is lost",
			slog.Duration("longer", p.Apart), slog.Duration("margin", l.s.cfg.Margin))
	}
	return time.Since(began), err
}

// hold renews the lease until a pass is over. Losing the lease does no harm: two concurrent readers count nothing
// twice.
func (l *Ledger) hold(ctx context.Context, owner string, over <-chan struct{}) {
	t := time.NewTicker(readerLease / 3)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_, _ = l.lease(ctx, owner, readerLease)
		case <-over:
			return
		}
	}
}

// pause returns how long to wait after a pass of the given duration: never past a full hour, nor so long that buckets
// go unread.
func (l *Ledger) pause(every, took time.Duration, now time.Time) time.Duration {
	const share = 30
	d := min(max(every, share*took), l.s.cfg.Margin/4)
	return min(max(d, every), now.Truncate(time.Hour).Add(time.Hour).Sub(now))
}

// lease acquires or renews the lease for d and reports whether the owner holds it; a d of 0 gives it up.
func (l *Ledger) lease(ctx context.Context, owner string, d time.Duration) (bool, error) {
	key := l.s.keys.reader()
	n, err := call(ctx, &l.s.server, script.Lease, []string{key}, []string{
		owner, strconv.FormatInt(d.Milliseconds(), 10),
	}, asInt)
	if err != nil {
		return false, l.s.trouble("usage", key, err)
	}
	return n == 1, nil
}
