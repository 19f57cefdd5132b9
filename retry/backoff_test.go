package retry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/retry"
)

var errBusy = errors.New("busy")

// tally counts the calls that reach a server in each tenth of a second.
type tally struct {
	mu    sync.Mutex
	begun time.Time
	calls []int
}

func (c *tally) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slot := int(time.Since(c.begun) / (100 * time.Millisecond))
	for len(c.calls) <= slot {
		c.calls = append(c.calls, 0)
	}
	c.calls[slot]++
	for _, of := range c.calls {
		n += of
	}
	return n
}

// TestBackoffStorm: a thousand clients refused at the same moment do not return together, whether or not the server gives
// a retry time, and no client returns early.
func TestBackoffStorm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		after time.Duration
		over  time.Duration // the first retries are spread over this time
	}{
		{"unsaid", 0, time.Second},
		{"retry after", 20 * time.Second, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const clients = 1000
				server := tally{begun: time.Now()}
				var wg sync.WaitGroup
				for range clients {
					wg.Go(func() {
						b := retry.Backoff{Base: time.Second, Tries: 5}
						allowed := time.Now()
						err := b.Do(t.Context(), func(context.Context) error {
							if time.Now().Before(allowed) {
								t.Error("came too early")
							}
							server.count()
							allowed = time.Now().Add(tt.after)
							return &retry.Error{After: tt.after, Err: errBusy}
						})
						if gaveUp, ok := errors.AsType[*retry.GaveUpError](err); !ok || gaveUp.Reason != retry.OutOfTries || gaveUp.Tries != 5 || !errors.Is(err, errBusy) {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				// Evenly spread, a slot gets clients / slots first retries, and about 0.6 times as many second and third
				// retries. A total of 2.1 times as many is at least four standard deviations off.
				most := clients * 21 / 10 / int(tt.over/(100*time.Millisecond))
				if n := server.calls[0]; n < clients || n > clients+most {
					t.Errorf("%d calls at first", n)
				}
				if peak := slices.Max(server.calls[1:]); peak > most {
					t.Errorf("%d retries in a tenth of a second, want %d at most", peak, most)
				}
			})
		})
	}
}

// TestBackoffBudget: if all calls fail, a client's callers together retry as often as the budget allows; if some calls
// succeed, a tenth of the successes is added to the budget.
func TestBackoffBudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		budget, fails, want int // fails: out of ten calls
	}{
		{0, 10, 10_000 + 100},
		{5, 10, 10_000 + 5},
		{-1, 10, 40_000},
		{5, 9, 0}, // at most the budget and a tenth of the successes
	} {
		t.Run(fmt.Sprintf("%d of %d fail", tt.fails, tt.budget), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := retry.Backoff{Budget: tt.budget}
				server := tally{begun: time.Now()}
				var mu sync.Mutex
				var succeeded, spent int
				var wg sync.WaitGroup
				for range 1000 {
					wg.Go(func() {
						for range 10 {
							err := b.Do(t.Context(), func(context.Context) error {
								if n := server.count(); n%10 < tt.fails {
									return weir.ErrUnavailable
								}
								return nil
							})
							var gaveUp *retry.GaveUpError
							mu.Lock()
							switch {
							case err == nil:
								succeeded++
							case errors.As(err, &gaveUp) && gaveUp.Reason == retry.OutOfBudget:
								spent++
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
				calls := server.count() - 1
				retries := calls - 10_000
				if tt.want > 0 && calls != tt.want {
					t.Errorf("%d calls, want %d", calls, tt.want)
				}
				if tt.budget > 0 && (retries > tt.budget+succeeded/10 || retries < tt.budget) {
					t.Errorf("%d retries, with %d that succeeded", retries, succeeded)
				}
				if (spent > 0) != (tt.budget >= 0) {
					t.Errorf("%d gave up for want of a budget", spent)
				}
			})
		})
	}
}

// TestBackoffGivesUp: a client neither waits for a retry that would come too late nor retries a final error.
func TestBackoffGivesUp(t *testing.T) {
	t.Parallel()
	over := func(after time.Duration) error {
		return &weir.ExceededError{Decision: weir.Decision{RetryAfter: after}}
	}
	for _, tt := range []struct {
		name   string
		b      *retry.Backoff
		within time.Duration // the context's timeout; 0: none
		err    error
		reason retry.GaveUp // 0: none
		calls  int
		least  time.Duration // the least time that it takes
		most   time.Duration
	}{
		{"final", &retry.Backoff{}, 0, errBusy, 0, 1, 0, 0},
		{"once", &retry.Backoff{Tries: 1}, 0, over(0), retry.OutOfTries, 1, 0, 0},
		{"default", &retry.Backoff{}, 0, over(time.Second), retry.OutOfTries, 4, 3 * time.Second, 3700 * time.Millisecond},
		{"wrapped", &retry.Backoff{}, 0, fmt.Errorf("acquire: %w", over(time.Second)), retry.OutOfTries, 4, 3 * time.Second, 3700 * time.Millisecond},
		{"deadline", &retry.Backoff{}, time.Second, over(2 * time.Second), retry.OutOfTime, 1, 0, 0},
		{"patience", &retry.Backoff{Patience: time.Second}, 0, over(time.Second + 1), retry.OutOfTime, 1, 0, 0},
		{"a day", &retry.Backoff{}, 0, over(24 * time.Hour), retry.OutOfTime, 1, 0, 0},
		{"a day, patiently", &retry.Backoff{Patience: -1, Tries: 2}, 0, over(24 * time.Hour), retry.OutOfTries, 2, 24 * time.Hour, 24*time.Hour + 20*time.Second},
		{"a balance", &retry.Backoff{Patience: -1, Tries: -1}, 0, over(math.MaxInt64), 0, 1, 0, 0},
		{"until the end", &retry.Backoff{Tries: -1, Cap: time.Second}, time.Hour, over(time.Minute), retry.OutOfTime, 60, 59 * time.Minute, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				calls, begun := 0, time.Now()
				err := tt.b.Do(ctx, func(context.Context) error { calls++; return tt.err })
				took := time.Since(begun)
				if gaveUp, ok := errors.AsType[*retry.GaveUpError](err); ok != (tt.reason > 0) || gaveUp != nil && (gaveUp.Reason != tt.reason || gaveUp.Tries != calls) {
					t.Error(err)
				}
				if !errors.Is(err, tt.err) || calls > tt.calls || calls < tt.calls-1 || tt.calls < 10 && calls != tt.calls || took < tt.least || took > tt.most {
					t.Errorf("%v: %d calls in %s", err, calls, took)
				}
			})
		})
	}
}

// TestBackoffCancelled: a context that ends during a pause ends the pause, and the error says so.
func TestBackoffCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		var b retry.Backoff
		err := b.Do(ctx, func(context.Context) error { return &retry.Error{After: 30 * time.Second, Err: errBusy} })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errBusy) || time.Since(begun) != time.Second {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// TestBackoffPause: a pause exceeds the requested time by up to Base·2^n, or by a tenth of it, and the whole range is used.
func TestBackoffPause(t *testing.T) {
	t.Parallel()
	b := retry.Backoff{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
	for _, tt := range []struct {
		retry  int
		after  time.Duration
		spread time.Duration
	}{
		{1, 0, 100 * time.Millisecond},
		{2, 0, 200 * time.Millisecond},
		{4, -time.Hour, 800 * time.Millisecond},
		{7, 0, 5 * time.Second},
		{math.MaxInt, 0, 5 * time.Second},
		{0, 0, 100 * time.Millisecond},
		{1, time.Minute, 5 * time.Second},
		{1, 10 * time.Second, time.Second},
		{3, time.Second, 400 * time.Millisecond},
	} {
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for range 500 {
			p := b.Pause(tt.retry, tt.after) - max(tt.after, 0)
			least, most = min(least, p), max(most, p)
		}
		if least < 0 || most > tt.spread || least > tt.spread/20 || most < tt.spread*19/20 {
			t.Errorf("retry %d after %s: from %s to %s, want up to %s", tt.retry, tt.after, least, most, tt.spread)
		}
	}
	if p := b.Pause(1, math.MaxInt64); p < math.MaxInt64-6*time.Second {
		t.Errorf("an endless pause came to %s", p)
	}
}

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, " 120 ": 2 * time.Minute, "99999999999": 1 << 32 * time.Second,
		"Sun, 01 Mar 2026 12:00:09 GMT": 9 * time.Second, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
		"Sunday, 01-Mar-26 12:01:00 GMT": time.Minute, "Sun Mar  1 12:00:01 2026": time.Second,
	} {
		if got, ok := retry.ParseRetryAfter(text, now); !ok || got != want {
			t.Errorf("%q: got %s (%t), want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "soon", "-1", "1.5", "2026-03-01T12:00:00Z"} {
		if got, ok := retry.ParseRetryAfter(text, now); ok {
			t.Errorf("%q: got %s", text, got)
		}
	}
}
