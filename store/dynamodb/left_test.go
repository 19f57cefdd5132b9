package dynamodb_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestLeftThrottled checks that a take whose caller has left, and whose write was throttled for its key, gives nothing
// back: nothing was debited.
func TestLeftThrottled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 64, time.Minute, 64)
		s := st.open()
		st.want(s, true, of(b, l, 1))
		st.fake.Before = func(string, any) error { time.Sleep(50 * time.Millisecond); return errHot }
		for _, amount := range []int64{1, 0} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if out, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(b, l, amount)}}); err == nil {
				t.Errorf("take of %d: allowed %t", amount, out.Allowed)
			}
			cancel()
			time.Sleep(time.Second)
		}
		st.fake.Before = nil
		if got := st.outstanding(b, "rpm"); got > 1000 {
			t.Errorf("%d outstanding", got)
		}
		st.must(s.Close())
	})
}

// TestCloseInOutage checks that a settle that cannot end does not keep the store from closing.
func TestCloseInOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 64, time.Minute, 64)
		s, _ := st.join()
		st.want(s, true, of(b, l, 4))
		other, _ := st.join()
		st.split(other, b, 2)
		st.fake.Before = func(op string, _ any) error {
			if op == "BatchGetItem" {
				return &types.InternalServerError{}
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		settle := store.Settle{ID: "x", Expires: st.clock.Now().Add(time.Hour), Debits: []store.Debit{of(b, l, -2)}}
		if _, err := s.Settle(ctx, settle); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("settle: %v", err)
		}
		began := time.Now()
		st.must(s.Close())
		if took := time.Since(began); took > time.Minute {
			t.Errorf("closing took %v", took)
		}
		st.fake.Before = nil
		st.must(other.Close())
	})
}

// TestBegunBehind checks that a limit begins with the first take that names it, even if that takes nothing: a process
// whose clock is behind must not begin it earlier.
func TestBegunBehind(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, rpm, tpm := bkt("a"), per("rpm", 60, time.Minute, 60), per("tpm", 6000, time.Minute, 6000)
	takes := func(first, second int64) store.Debit {
		return store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{
			{Limit: rpm, Amount: 1000 * first}, {Limit: tpm, Amount: 1000 * second},
		}}
	}
	s := st.open(noGuard)
	st.want(s, true, takes(0, 0))
	behind := st.open(noGuard, func(c *dynamodb.Config) {
		c.Now = func() time.Time { return st.clock.Now().Add(-500 * time.Millisecond) }
	})
	st.want(behind, true, takes(0, 6000)) // at the time of the bucket's last write
	st.want(s, false, takes(0, 1))
}

// TestLeftNames checks that the error of a caller that gave up names what it was waiting for.
func TestLeftNames(t *testing.T) {
	t.Parallel()
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	for op, call := range map[string]func(ctx context.Context, s *dynamodb.Store) error{
		"take": func(ctx context.Context, s *dynamodb.Store) error {
			_, err := s.Take(ctx, store.Take{Debits: []store.Debit{of(b, l, 1)}})
			return err
		},
		"settle": func(ctx context.Context, s *dynamodb.Store) error {
			_, err := s.Settle(ctx, store.Settle{Debits: []store.Debit{of(b, l, -1)}})
			return err
		},
		"forget": func(ctx context.Context, s *dynamodb.Store) error { return s.Forget(ctx, b) },
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s := st.open()
			st.want(s, true, of(b, l, 1))
			st.fake.Before = func(string, any) error { time.Sleep(50 * time.Millisecond); return nil }
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			var e *store.Error
			if err := call(ctx, s); !errors.As(err, &e) || e.Op != op || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", op, err)
			}
			st.must(s.Close())
		})
	}
}
