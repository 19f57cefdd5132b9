package weir_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/store"
)

// TestTurnNotComeIsAnError checks that a decision whose turn to call the store does not come is neither made nor
// degraded, and that the breaker does not notice.
func TestTurnNotComeIsAnError(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 100))
		crowded := errors.New("crowded")
		parts.Of(b.Limiter).Gate.Use(func(context.Context, string, int) (func(), error) { return nil, crowded })
		for range 20 {
			for how, decide := range b.deciders("alice") {
				if allowed, err := decide(); allowed || !errors.Is(err, crowded) {
					t.Errorf("%s: got %t, %v", how, allowed, err)
				}
			}
		}
		if st := b.outageStats(); st.Breaker != "closed" || st.Failed+st.TimedOut > 0 {
			t.Errorf("got %+v", st)
		}
	}, tight)
}

// TestTurnDoesNotTakeTime checks that the wait for a turn is not counted as lateness of the store, that it ends with the
// caller's context, and that each turn is left.
func TestTurnDoesNotTakeTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 100))
		entered, left, items := 0, 0, 0
		parts.Of(b.Limiter).Gate.Use(func(ctx context.Context, namespace string, n int) (func(), error) {
			turn := time.NewTimer(time.Second)
			defer turn.Stop()
			select {
			case <-turn.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			entered, items = entered+1, items+n
			return func() { left++ }, nil
		})
		for how, decide := range b.deciders("alice") {
			if degraded, err := decide(); err != nil || how != "Allow" && degraded {
				t.Errorf("%s: degraded %t, %v", how, degraded, err)
			}
		}
		if entered != 5 || left != 5 || items != 6 { // Wait looks up limits ahead, AcquireAll has two requests
			t.Errorf("%d turns, %d left, for %d requests", entered, left, items)
		}
		ctx, cancel := context.WithTimeout(b.ctx, time.Millisecond)
		defer cancel()
		_, err := b.Acquire(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
		wantErr(t, err, context.DeadlineExceeded)
	}, tight)
}

// TestPrefetchOnce checks that requests of one entity on one resource read its limits together, however many they are:
// 25 entities take one turn, and a single one takes none before the decisions on it.
func TestPrefetchOnce(t *testing.T) {
	t.Parallel()
	for entities, want := range map[int]int64{1: 0, 2: 1, 25: 1, 26: 2} {
		bubble(t, func(b *bundle) {
			b.set("", "", weir.PerHour("rpm", 100))
			var turns, reads atomic.Int64
			parts.Of(b.Limiter).Gate.Use(func(context.Context, string, int) (func(), error) {
				turns.Add(1)
				return func() {}, nil
			})
			b.fake.does(func(f *fakeStore) {
				f.get = func(ctx context.Context, keys ...store.Key) (store.Got, error) {
					reads.Add(1)
					return f.Store.Get(ctx, keys...)
				}
			})
			parts.Of(b.Limiter).Prefetch(b.ctx, 1000, func(i int) (entity, resource string, own bool) {
				return fmt.Sprint(i % entities), "api", i%3 > 0
			})
			if turns.Load() != want || (reads.Load() > 0) != (want > 0) {
				t.Errorf("%d entities: %d turns and %d reads, want %d turns", entities, turns.Load(), reads.Load(), want)
			}
		})
	}
}
