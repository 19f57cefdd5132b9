package admin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
)

// slow answers its first calls with errors, and the others only after two minutes.
type slow struct{ first []error }

func (s *slow) Call(ctx context.Context, _ *api.Op, _ any) (any, error) {
	if len(s.first) > 0 {
		err := s.first[0]
		s.first = s.first[1:]
		return nil, err
	}
	if !sleep(ctx, 2*time.Minute) {
		return nil, ctx.Err()
	}
	return api.Decision{Allowed: true}, nil
}

// A wait ends with its timeout even if a call is not answered, and is then a refusal.
func TestWaitTimeout(t *testing.T) {
	t.Parallel()
	over := &weir.ExceededError{Decision: weir.Decision{RetryAfter: 10 * time.Millisecond}}
	for name, tt := range map[string]struct {
		first   []error
		timeout time.Duration
		code    int
		took    time.Duration
	}{
		"no answer":           {nil, time.Second, kit.Refused, time.Second},
		"refused, no answer":  {[]error{over, over}, time.Second, kit.Refused, time.Second},
		"an error":            {[]error{weir.ErrNotFound}, time.Second, kit.NotFound, 0},
		"answered in time":    {nil, time.Hour, kit.Done, 2 * time.Minute},
		"without a timeout":   {[]error{over}, 0, kit.Done, 2*time.Minute + over.RetryAfter},
		"refused until later": {[]error{&weir.ExceededError{Decision: weir.Decision{RetryAfter: time.Hour}}}, time.Second, kit.Refused, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				d, err := wait(t.Context(), &slow{tt.first}, &patience{Timeout: tt.timeout})
				code := kit.Done
				if err != nil {
					code = kit.CodeOf(err)
				}
				if took := time.Since(began); took != tt.took || code != tt.code || d.Allowed != (err == nil) {
					t.Errorf("took %v, code %d, %+v, %v", took, code, d, err)
				}
				if len(tt.first) > 1 && !errors.Is(err, weir.ErrExceeded) {
					t.Errorf("the refusal is lost: %v", err)
				}
			})
		})
	}
}

// An interrupt is no timeout.
func TestWaitInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := wait(ctx, &slow{}, &patience{Timeout: time.Minute}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
