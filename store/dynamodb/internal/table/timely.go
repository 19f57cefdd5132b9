package table

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/weirlimits/weir/store"
)

const (
	// settleWithin is how long [Table.Settled] waits.
	settleWithin = 3 * time.Second
	// quickly is how often dates are looked for while the time is in doubt, slowly while they only disagree with it.
	quickly = sightEvery * 3 / 2
	slowly  = time.Second
)

var errClock = errors.New("the time is in doubt")

// Answered takes the date of an answer into account. Sent is from [Skew.Sent]. Key is an item that this process may
// read.
func (t *Table) Answered(meta middleware.Metadata, sent int64, key Key) {
	if t.cfg.Now != nil {
		return
	}
	t.Skew.Answered(meta, sent)
	if t.Skew.watched() {
		t.look(key)
	}
}

// Sure reports whether the time is not in doubt.
func (t *Table) Sure() bool { return t.cfg.Now != nil || t.Skew.Sure() }

// Timely returns an error while the time is in doubt, so that no bucket may be written by it. If there was no answer
// yet, it reads an item for its date. Key is an item that this process may read.
func (t *Table) Timely(ctx context.Context, key Key) error {
	if t.Sure() {
		return nil
	}
	if err := t.first(ctx, key); err != nil || t.Sure() {
		return err
	}
	t.look(key)
	hint := "the next answers decide, usually within a second"
	if !t.Skew.Confirmed() {
		hint = "set this machine's clock; without that, the next answers decide, in up to a minute and a half"
	}
	return &store.Error{
		Op: "write", Key: t.cfg.Table,
		Err: fmt.Errorf(
			"%w: DynamoDB's clock differs from this machine's by %v", errClock, t.Skew.Seen().Round(time.Second),
		),
		Hint: hint, Extent: store.ExtentStore,
	}
}

// first gets the first answer, for one of the callers at a time. The others wait for it, but only until ctx is done.
func (t *Table) first(ctx context.Context, key Key) error {
	select {
	case t.begin <- struct{}{}:
		defer func() { <-t.begin }()
	case <-ctx.Done():
		return t.Trouble("read", key.String(), ctx.Err())
	}
	if !t.Skew.Unseen() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.WriteTimeout)
	defer cancel()
	_, err := t.BatchGet(ctx, []Key{key})
	return err
}

// Settled waits until the time is not in doubt, but not for long.
func (t *Table) Settled(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for t.Timely(ctx, VersionKey()) != nil {
		if smithytime.SleepWithContext(ctx, sightEvery/2) != nil {
			return
		}
	}
}

// look watches the server's dates in the background, by reading an item, until the time and the dates agree.
func (t *Table) look(key Key) {
	if !t.looking.CompareAndSwap(false, true) {
		return
	}
	if !t.others.Go(func() {
		defer t.looking.Store(false)
		for t.Skew.watched() {
			pause := slowly
			if !t.Skew.Sure() {
				pause = quickly
			}
			if smithytime.SleepWithContext(t.life, pause) != nil {
				return
			}
			if !t.Skew.watched() {
				return
			}
			ctx, cancel := context.WithTimeout(t.life, t.cfg.WriteTimeout)
			_, _ = t.BatchGet(ctx, []Key{key})
			cancel()
		}
	}) {
		t.looking.Store(false)
	}
}
