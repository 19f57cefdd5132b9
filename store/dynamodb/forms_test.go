package dynamodb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

var errLost = errors.New("connection reset by peer")

// losing loses the answers to the next n updates of an entity's bucket, and counts the updates.
func (st *stage) losing(entity string, n int) *int {
	var mu sync.Mutex
	calls := new(int)
	st.fake.After = func(op string, in, _ any) error {
		u, ok := in.(*sdk.UpdateItemInput)
		if !ok || !strings.Contains(u.Key["PK"].(*types.AttributeValueMemberS).Value, "#"+entity+"#") {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if *calls++; *calls <= n {
			return errLost
		}
		return nil
	}
	return calls
}

// TestDebitAgain checks that a debit whose answer is lost is made again: at worst, it is spent twice.
func TestDebitAgain(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open()
	rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
	calls := st.losing("alice", 1)
	st.want(s, true, of(alice, rpm, 3))
	if n := st.outstanding(alice, "rpm"); *calls > 3 || n != 6000 {
		t.Errorf("%d calls, %d outstanding", *calls, n)
	}
}

// TestReturnOnce checks that a return whose answer is lost is not made again, and that its caller is told.
func TestReturnOnce(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open()
	rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
	st.want(s, true, of(alice, rpm, 9))
	calls := st.losing("alice", 1)
	_, err := s.Settle(t.Context(), store.Settle{Debits: []store.Debit{of(alice, rpm, -4)}})
	if _, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(err, errLost) {
		t.Error(err)
	}
	s.Flush()
	if n := st.outstanding(alice, "rpm"); *calls != 1 || n != 5000 {
		t.Errorf("%d calls, %d outstanding", *calls, n)
	}
}

// queue makes calls that wait, one after another, while the process's next write to alice's bucket, a debit of tokens,
// is held back. What happened to that write is what after returns.
func (st *stage) queue(t *testing.T, s *dynamodb.Store, p *process, debit store.Debit, after func(), calls ...func()) {
	held := make(chan struct{})
	p.after = func(string, any) error {
		p.after = nil
		<-held
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { st.want(s, true, debit) })
	for _, call := range calls {
		synctest.Wait()
		all.Go(call)
	}
	synctest.Wait()
	after()
	close(held)
	all.Wait()
	s.Flush()
}

// TestReturnAboardOnce checks the same for a return that rides with a debit. The debit is made again without it.
func TestReturnAboardOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
		lose := func() {
			p.after = func(string, any) error {
				p.after = nil
				return errLost
			}
		}
		var err error
		before := st.writes()
		st.queue(t, s, p, of(alice, rpm, 5), func() {}, func() { lose(); st.want(s, true, of(alice, rpm, 2)) }, func() {
			_, err = s.Settle(t.Context(), store.Settle{Debits: []store.Debit{of(alice, rpm, -2)}})
		})
		if !errors.Is(err, errLost) {
			t.Error(err)
		}
		r, _ := st.number(alice, "R_rpm")
		if n := st.outstanding(alice, "rpm"); st.writes()-before != 3 || r != "2000" || n != 7000 {
			t.Errorf("%d writes, returned %s, %d outstanding", st.writes()-before, r, n)
		}
	})
}

// TestReturnRefusedRides checks that a return aboard a write that was certainly not applied is not lost.
func TestReturnRefusedRides(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open()
	rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
	st.want(s, true, of(alice, rpm, 9))
	left := 2
	st.fake.Before = func(string, any) error {
		if left--; left < 0 {
			return nil
		}
		return &types.ProvisionedThroughputExceededException{}
	}
	st.settle(s, of(alice, rpm, -4))
	if n := st.outstanding(alice, "rpm"); n != 5000 {
		t.Errorf("%d outstanding", n)
	}
}

// TestNetNotBelowZero checks that a write carries returns only up to the debits that it carries.
func TestNetNotBelowZero(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		taken  int64
		writes int
	}{{1, 3}, {2, 2}, {3, 2}} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s, p := st.join()
			rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
			before := st.writes()
			st.queue(t, s, p, of(alice, rpm, 5), func() {},
				func() { st.want(s, true, of(alice, rpm, tt.taken)) }, func() { st.settle(s, of(alice, rpm, -2)) })
			if n, owed := st.writes()-before, st.outstanding(alice, "rpm"); n != tt.writes || owed != 1000*(3+tt.taken) {
				t.Errorf("a return of 2 beside a debit of %d: %d writes, want %d, %d outstanding", tt.taken, n, tt.writes, owed)
			}
		})
	}
}

// TestDebitFirst checks that a debit with which a return rides must fit without the return. Here, another process spent
// what the store thought was there.
func TestDebitFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
		st.queue(t, s, p, of(alice, rpm, 1), func() { st.want(st.open(noGuard), true, of(alice, rpm, 5)) },
			func() { st.want(s, false, of(alice, rpm, 6)) }, func() { st.settle(s, of(alice, rpm, -3)) })
		if n := st.outstanding(alice, "rpm"); n != 3000 {
			t.Errorf("%d outstanding", n)
		}
	})
}

// TestTakeWaitsForReturn checks that a take that fits only after a return that was made before it waits for the return.
func TestTakeWaitsForReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
		st.queue(t, s, p, of(alice, rpm, 9), func() {},
			func() { st.settle(s, of(alice, rpm, -5)) }, func() { st.want(s, true, of(alice, rpm, 6)) })
		if n := st.outstanding(alice, "rpm"); n != 10_000 {
			t.Errorf("%d outstanding", n)
		}
	})
}

// TestLegUnknown checks that the debit of a bucket of a cascade is returned only if it is known to have been made.
func TestLegUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s := st.open(noGuard)
		rpm, child, parent := per("rpm", 1000, time.Hour, 1000), bkt("child"), bkt("parent")
		st.losing("child", 1<<30)
		_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(child, rpm, 4), of(parent, rpm, 4)}})
		if !errors.Is(err, errLost) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		s.Flush()
		st.fake.After = nil
		if n := st.outstanding(parent, "rpm"); n != 0 {
			t.Errorf("the parent has %d outstanding", n)
		}
		if r, ok := st.number(child, "R_rpm"); ok || st.outstanding(child, "rpm") == 0 {
			t.Errorf("the child was given back %s", r)
		}
	})
}

// options records how calls are made.
type options struct {
	*dynamotest.Fake

	t     *testing.T
	calls int
}

func (o *options) check(fns []func(*sdk.Options)) {
	var made sdk.Options
	for _, f := range fns {
		f(&made)
	}
	if o.calls++; made.Retryer == nil || made.Retryer.MaxAttempts() != 1 {
		o.t.Error("a write that the SDK may repeat")
	}
}

func (o *options) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, fns ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	o.check(fns)
	return o.Fake.UpdateItem(ctx, in, fns...)
}

func (o *options) PutItem(ctx context.Context, in *sdk.PutItemInput, fns ...func(*sdk.Options)) (*sdk.PutItemOutput, error) {
	o.check(fns)
	return o.Fake.PutItem(ctx, in, fns...)
}

func (o *options) DeleteItem(ctx context.Context, in *sdk.DeleteItemInput, fns ...func(*sdk.Options)) (*sdk.DeleteItemOutput, error) {
	o.check(fns)
	return o.Fake.DeleteItem(ctx, in, fns...)
}

// TestOneAttempt checks that the SDK repeats no write to a bucket.
func TestOneAttempt(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	o := &options{Fake: st.fake, t: t}
	s := st.open(func(c *dynamodb.Config) { c.Client = o })
	rpm, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
	st.want(s, true, of(alice, rpm, 4))
	st.settle(s, of(alice, rpm, -1))
	st.settle(s, of(alice, rpm, 1))
	if _, err := s.Settle(t.Context(), store.Settle{ID: "x", Expires: st.clock.Now().Add(time.Hour), Debits: []store.Debit{of(alice, rpm, -1)}}); err != nil {
		t.Error(err)
	}
	if err := s.Forget(t.Context(), alice); err != nil {
		t.Error(err)
	}
	if o.calls < 6 {
		t.Errorf("%d writes", o.calls)
	}
}
