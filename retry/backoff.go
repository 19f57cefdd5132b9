// Package retry repeats calls that a limiter or its service refused, without causing a retry storm.
package retry

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

	"github.com/weirlimits/weir"
)

// Backoff retries calls that were refused or got no answer, without causing a retry storm: clients do not come back
// together, none comes back before the time that the service gave, and when nearly all calls fail, almost none is
// retried. The zero value is ready to use, and safe for concurrent use; it must not be copied afterwards. Use one
// Backoff for all calls to a service, so that they share its budget.
type Backoff struct {
	// Base bounds the delay of the first retry; the bound doubles with each further retry. Defaults to 100 ms.
	Base time.Duration
	// Cap bounds that delay. It must not be negative. Defaults to 20 s.
	Cap time.Duration
	// Patience is the longest time that a client waits for one retry; if the service gives a later time, it gives
	// up. If negative, it waits until that time. Defaults to 1 min.
	Patience time.Duration
	// Tries is how many times a call is made, including the first; 1 means no retry. If negative, until ctx ends.
	// Defaults to 4.
	Tries int
	// Budget bounds the retries of all calls together: there are never more than Budget plus a tenth of the calls that
	// succeeded. If negative, there is no bound. Defaults to 100.
	Budget int

	mu    sync.Mutex
	spent int // of the budget, in tenths of a retry
}

// refund is what a successful call adds to the budget, in tenths of a retry.
const refund = 1

// Do calls call until it succeeds, fails for good, or may not be retried again. Three errors cause a retry, no earlier
// than they allow: an [*weir.ExceededError], unless a balance refused, which must be topped up, an error that matches
// [weir.ErrUnavailable], and a [*Error]. Any other error is final; a call that is not safe to repeat returns one.
//
// Errors: call's own error if it is final; a [*GaveUpError] that wraps call's last error; ctx's error if ctx ends
// during a pause.
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

// Pause returns how long to wait before a retry, counted from 1, that must not come before after has passed: after,
// plus a random part of Base·2^(retry-1), or of a tenth of after if that is more, but of at most Cap. Pause is for
// callers that retry by other means than [Backoff.Do], such as a queue. It spends no budget.
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

// retryable reports whether an error causes a retry, and the least time to wait before it.
func retryable(err error) (after time.Duration, again bool) {
	var told *Error
	var over *weir.ExceededError
	switch {
	case errors.As(err, &told):
		return told.After, true
	case errors.As(err, &over):
		return over.RetryAfter, over.RetryAfter < math.MaxInt64 // a balance must be topped up
	}
	return 0, errors.Is(err, weir.ErrUnavailable)
}

// Error makes [Backoff.Do] retry a call, no earlier than After. Use it for calls outside this package, such as
// HTTP requests answered with 429 or 503; see [ParseRetryAfter].
type Error struct {
	After time.Duration // from now; 0 leaves the delay to Backoff
	Err   error
}

// Error returns the text of Err, and when to retry.
func (e *Error) Error() string {
	if e.After <= 0 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; retry in %s", e.Err, e.After)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// GaveUp is the reason why a [Backoff] gave up.
type GaveUp uint8

// The reasons why a Backoff gives up.
const (
	OutOfTries  GaveUp = iota + 1 // the call was made as often as Backoff.Tries allows
	OutOfTime                     // ctx would end before the next try, or the wait would exceed Backoff.Patience
	OutOfBudget                   // too many calls fail, and retries would make it worse
)

// String returns the reason as text.
func (g GaveUp) String() string {
	switch g {
	case OutOfTries:
		return "no tries left"
	case OutOfTime:
		return "the next try would come too late"
	case OutOfBudget:
		return "the retry budget is spent"
	}
	return "GaveUp(" + strconv.Itoa(int(g)) + ")"
}

// GaveUpError reports that a call was not retried again, and why. It wraps the last error of the call.
type GaveUpError struct {
	Reason     GaveUp
	Tries      int           // calls made
	RetryAfter time.Duration // the least wait that the last error requires; 0 if it requires none
	Err        error
}

// Error returns the reason, and the call's error.
func (e *GaveUpError) Error() string {
	return fmt.Sprintf("gave up after %d tries: %s: %v", e.Tries, e.Reason, e.Err)
}

// Unwrap returns the call's error.
func (e *GaveUpError) Unwrap() error { return e.Err }

// ParseRetryAfter parses the value of an HTTP Retry-After header, seconds or a date, relative to now. A date in the
// past is 0. It reports false for anything else, including "".
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

// maxRetryAfter is the largest delay, in seconds; larger values are cut to it.
const maxRetryAfter = 1 << 32
