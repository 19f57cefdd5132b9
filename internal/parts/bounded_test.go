package parts

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBounded(t *testing.T) {
	t.Parallel()
	given := errors.New("given up")
	for name, end := range map[string]struct {
		by   func(b *bounded, cancel context.CancelCauseFunc)
		want error
	}{
		"timeout": {func(*bounded, context.CancelCauseFunc) {}, context.DeadlineExceeded},
		"caller":  {func(_ *bounded, cancel context.CancelCauseFunc) { cancel(given) }, context.Canceled},
		"end":     {func(b *bounded, _ context.CancelCauseFunc) { b.end() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				b := bound(ctx, time.Second)
				defer b.end()
				unread := bound(ctx, time.Second)
				below, stop := context.WithCancel(b)
				defer stop()
				if err := errors.Join(b.Err(), below.Err(), unread.Err()); err != nil {
					t.Fatal(err)
				}
				end.by(b, cancel)
				<-b.Done()
				<-below.Done()
				if b.Err() != end.want || below.Err() != end.want { //nolint:errorlint // as of the standard library
					t.Fatalf("%v, below %v, want %v", b.Err(), below.Err(), end.want)
				}
				if err := unread.Err(); name != "end" && !errors.Is(err, end.want) {
					t.Fatalf("nobody waited: %v, want %v", err, end.want)
				}
				if name == "caller" && context.Cause(below) != given { //nolint:errorlint // the same
					t.Fatalf("cause %v", context.Cause(below))
				}
			})
		})
	}
}

func TestBoundedDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Hour: time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if until, ok := bound(ctx, timeout).Deadline(); !ok || time.Until(until) != want {
				t.Errorf("timeout %v: in %v, want %v", timeout, time.Until(until), want)
			}
		}
	})
}

func TestBoundedStartsNoTimer(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of the whole process
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		b := bound(ctx, time.Hour)
		_, _ = b.Err(), b.Value(t)
		b.end()
	}); n > 1 {
		t.Errorf("%v allocations although nobody waited", n)
	}
}
