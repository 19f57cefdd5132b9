package table

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	smithytime "github.com/aws/smithy-go/time"
)

// Within bounds an operation on the catalog if its caller does not, to a few times what one write may take.
func (t *Table) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 5*t.cfg.WriteTimeout)
}

// Attempt makes a call, and repeats it while that may help, until ctx ends. The call must be safe to repeat.
func (t *Table) Attempt(ctx context.Context, call func(context.Context) error) error {
	return t.Repeat(ctx, Backoff, call)
}

// Repeat is Attempt with other pauses than [Backoff].
func (t *Table) Repeat(ctx context.Context, pause func(try int) time.Duration, call func(context.Context) error) error {
	for try := 1; ; try++ {
		err := t.attemptOnce(ctx, call)
		if err == nil || ctx.Err() != nil || !Transient(err) {
			return err
		}
		if cause := smithytime.SleepWithContext(ctx, pause(try)); cause != nil {
			return fmt.Errorf("%w after %d tries: %w", cause, try, err)
		}
	}
}

func (t *Table) attemptOnce(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.WriteTimeout)
	defer cancel()
	return call(ctx)
}

// Backoff is how long to wait after so many tries: up to 25 ms after the first, and twice that after each further try,
// up to 200 ms. It is spread over the whole range so that callers that collided do not meet again.
func Backoff(try int) time.Duration {
	return rand.N(25 * time.Millisecond << min(max(try-1, 0), 3))
}
