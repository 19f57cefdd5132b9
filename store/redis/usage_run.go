package redis

import (
	"context"
	"crypto/rand"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// readerLease is for how long a reader that is not heard of keeps others waiting.
const readerLease = 30 * time.Second

// Run makes passes until ctx ends, which is no error: one that begins as an hour turns, and others about every so often, 10
// s if it is 0, less often where passes take so long that they would use more than a thirtieth of the time. Of several that
// run one makes them, by a lease, and the next within 30 s of its end. Log is told of what could not be read.
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

// Once makes one pass, unless another reader is at it. Log is told of what could not be read.
func (l *Ledger) Once(ctx context.Context, log *slog.Logger) error {
	owner := rand.Text()
	defer l.leave(ctx, owner)
	_, err := l.turn(ctx, owner, log)
	return err
}

// leave gives the lease up, so that others need not wait.
func (l *Ledger) leave(ctx context.Context, owner string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.s.cfg.CallTimeout)
	defer cancel()
	_, _ = l.lease(ctx, owner, 0) // else its time runs out
}

// turn makes a pass if it is this reader's turn, and returns how long it took.
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
		log.LogAttrs(ctx, slog.LevelWarn, "usage was not read for longer than buckets are sure to be there: what they had counted is lost of those that are gone",
			slog.Duration("longer", p.Apart), slog.Duration("margin", l.s.cfg.Margin))
	}
	return time.Since(began), err
}

// hold keeps the lease until a pass is over. What becomes of it is no matter: two that read count nothing twice.
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

// pause is how long to wait after a pass that took so long: never past the turn of an hour, nor so long that buckets go unread.
func (l *Ledger) pause(every, took time.Duration, now time.Time) time.Duration {
	const share = 30
	d := min(max(every, share*took), l.s.cfg.Margin/4)
	return min(max(d, every), now.Truncate(time.Hour).Add(time.Hour).Sub(now))
}

// lease reports whether the owner may read for a while; 0 gives it up.
func (l *Ledger) lease(ctx context.Context, owner string, d time.Duration) (bool, error) {
	key := l.s.keys.reader()
	n, err := l.s.run(ctx, leaseScript, []string{key}, []string{owner, strconv.FormatInt(d.Milliseconds(), 10)}).AsInt64()
	if err != nil {
		return false, l.s.trouble("usage", key, err)
	}
	return n == 1, nil
}
