package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Backoff repeats calls that were refused, or got no answer, so that many clients who do the same make no storm: they
// do not come back together, none comes back before it was told to, and when nearly all calls fail, nearly none is
// repeated. The zero value is ready for use, by any number of goroutines; it must not be copied afterwards. All calls to
// one service share one Backoff, and so its budget.
type Backoff struct {
	// Base is how long the first retry is put off at most; each further one is twice as long. Defaults to 100 ms.
	Base time.Duration
	// Cap bounds that. Defaults to 20 s.
	Cap time.Duration
	// Patience is how long a client waits for one retry: told to come back later than that, it gives up. Negative: for
	// as long as it is told. Defaults to 1 min.
	Patience time.Duration
	// Tries is how often a call is made, the first time included; 1: once. Negative: until ctx ends. Defaults to 4.
	Tries int
	// Budget bounds retries of all calls together: there are never more than Budget and a tenth of the calls that
	// succeeded. Negative: no bound. Defaults to 100.
	Budget int

	mu    sync.Mutex
	spent int // of the budget, in tenths of a retry
}

// refund is what a call that succeeds adds to the budget, in tenths of a retry.
const refund = 1

// Do calls until a call succeeds, fails for good, or is not to be repeated again. Three errors have a call repeated, not
// before they allow it: an [*ExceededError], one that matches [ErrUnavailable], and a [*RetryError]. Any other is final: a
// call that is not safe to repeat returns one.
//
// Errors: call's own, if it is final; a [*GaveUpError], which wraps call's last; ctx's, if it ends during a pause.
func (b *Backoff) Do(ctx context.Context, call func(context.Context) error) error {
	for try := 1; ; try++ {
		err := call(ctx)
		if err == nil {
			b.refund()
			return nil
		}
		after, again := retryable(err)
		if !again {
			return err
		}
		pause := b.Pause(try, after)
		gaveUp := &GaveUpError{Tries: try, RetryAfter: after, Err: err}
		switch deadline, ok := ctx.Deadline(); {
		case b.Tries >= 0 && try >= cmp.Or(b.Tries, 4):
			gaveUp.Reason = OutOfTries
			return gaveUp
		case b.Patience >= 0 && after > cmp.Or(b.Patience, time.Minute), ok && time.Now().Add(pause).After(deadline):
			gaveUp.Reason = OutOfTime
			return gaveUp
		case !b.spend():
			gaveUp.Reason = OutOfBudget
			return gaveUp
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("retry: %w: %w", ctx.Err(), err)
		}
	}
}

// Pause returns how long to put off a retry, from 1, that is not to come before after has passed: after, and a random
// part of Base·2^(retry-1), or of a tenth of after if that is more, but of no more than Cap. It is for those who repeat
// by other means than [Backoff.Do], such as a queue, and spends no budget.
func (b *Backoff) Pause(retry int, after time.Duration) time.Duration {
	most := cmp.Or(b.Cap, 20*time.Second)
	after = min(max(after, 0), math.MaxInt64-most-1)
	spread := cmp.Or(b.Base, 100*time.Millisecond)
	for ; retry > 1 && spread < most; retry-- {
		spread *= 2
	}
	return after + rand.N(min(most, max(spread, after/10))+1)
}

func (b *Backoff) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Budget >= 0 && b.spent+10 > 10*cmp.Or(b.Budget, 100) {
		return false
	}
	b.spent += 10
	return true
}

func (b *Backoff) refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-refund)
}

// retryable reports whether an error has a call repeated, and how long it is to be put off at least.
func retryable(err error) (after time.Duration, again bool) {
	var told *RetryError
	var over *ExceededError
	switch {
	case errors.As(err, &told):
		return told.After, true
	case errors.As(err, &over):
		return over.RetryAfter, true
	}
	return 0, errors.Is(err, ErrUnavailable)
}

// RetryError has [Backoff.Do] repeat a call, not before After has passed. It is for calls of other than this package,
// such as HTTP requests that were answered 429 or 503: see [ParseRetryAfter].
type RetryError struct {
	After time.Duration // from now; 0: as Backoff sees fit
	Err   error
}

// Error returns the error's text, and when to come back.
func (e *RetryError) Error() string {
	if e.After <= 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; retry in %s", e.Err, e.After)
}

// Unwrap returns the error.
func (e *RetryError) Unwrap() error { return e.Err }

// GaveUp is why a [Backoff] gave up.
type GaveUp uint8

// Why a Backoff gives up.
const (
	OutOfTries  GaveUp = iota + 1 // the call was made so often
	OutOfTime                     // ctx would end before the next try, or it is put off for longer than Backoff.Patience
	OutOfBudget                   // too many calls fail: to repeat them would make it worse
)

// String says it.
func (g GaveUp) String() string {
	switch g {
	case OutOfTries:
		return "tried often enough"
	case OutOfTime:
		return "the next try would come too late"
	case OutOfBudget:
		return "the retry budget is spent"
	}
	return "GaveUp(" + strconv.Itoa(int(g)) + ")"
}

// GaveUpError says that a call was not repeated again, and why. It wraps the error that the call last returned.
type GaveUpError struct {
	Reason     GaveUp
	Tries      int           // calls that were made
	RetryAfter time.Duration // how long the last error put the next one off at least; 0: it did not say
	Err        error
}

// Error says why, and what the call returned.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("gave up after %d tries: %s: %v", e.Tries, e.Reason, e.Err)
}

// Unwrap returns the call's error.
func (e *GaveUpError) Unwrap() error { return e.Err }

// ParseRetryAfter reads the value of an HTTP Retry-After header, seconds or a date, as of now. A date that has passed is
// 0. It reports false for what is neither, and for "".
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.TrimSpace(value)
	if n, err := strconv.ParseUint(value, 10, 63); err == nil {
		return time.Duration(min(n, maxRetryAfter)) * time.Second, true
	}
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 MST", time.ANSIC} {
		if at, err := time.Parse(layout, value); err == nil {
			return max(0, at.Sub(now)), true
		}
	}
	return 0, false
}

// maxRetryAfter is the largest that is understood, in seconds; more means as much.
const maxRetryAfter = 1 << 32
