package dynamodb_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestUndoMelts checks that undoing a refused take returns only what the clock has not passed since. A bucket that has
// filled up meanwhile has refilled the tokens already, and they could otherwise be spent twice.
func TestUndoMelts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		other := st.open(noGuard, noMemory)
		rpm, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
		st.want(other, true, of(bob, rpm, 10))
		release := p.hold()
		st.want(s, false, of(alice, rpm, 4), of(bob, rpm, 1)) // alice is debited
		if d, _ := st.number(alice, "D_rpm"); d != "4000" {
			t.Fatalf("debited %s", d)
		}
		st.clock.Advance(time.Hour)
		st.want(other, true, of(alice, rpm, 10))
		release()
		s.Flush()
		st.want(other, false, of(alice, rpm, 1))

		// Half of it is returned if half has been refilled.
		st.clock.Advance(2 * time.Hour)
		st.want(other, true, of(bob, rpm, 10))
		release = p.hold()
		st.want(s, false, of(alice, rpm, 4), of(bob, rpm, 1))
		st.clock.Advance(time.Hour / 5)
		st.want(other, true, of(alice, rpm, 0)) // what was planned no longer holds
		release()
		s.Flush()
		if r, _ := st.number(alice, "R_rpm"); r != "2000" {
			t.Errorf("returned %s", r)
		}
		if n := st.outstanding(alice, "rpm"); n != 0 {
			t.Errorf("%d outstanding", n)
		}
	})
}

// TestUndoTwice checks that two takes that are undone in another order than they were made return no more than is still
// spent.
func TestUndoTwice(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		after       time.Duration
		taken, left int64 // by another process meanwhile, and what it may take then
	}{
		{"at once", 0, 5, 5},
		{"a part has melted", 18 * time.Minute, 8, 2},
		{"all has melted", 30 * time.Minute, 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				s1, p1 := st.join()
				s2, p2 := st.join()
				other := st.open(noGuard, noMemory)
				l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
				st.want(other, true, of(bob, l, 10))
				first, second := p1.hold(), p2.hold()
				st.want(s1, false, of(alice, l, 5), of(bob, l, 1))
				st.want(s2, false, of(alice, l, 5), of(bob, l, 1))
				first()
				s1.Flush()
				st.clock.Advance(tt.after)
				st.want(other, true, of(alice, l, tt.taken))
				second()
				s2.Flush()
				st.want(other, false, of(alice, l, tt.left+1))
				if tt.left > 0 {
					st.want(other, true, of(alice, l, tt.left))
				}
			})
		})
	}
}

// TestUndoOfSpent checks that in a bucket that others have emptied, a refused take returns all that it took, however fast
// the bucket fills.
func TestUndoOfSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		other := st.open(noGuard, noMemory)
		l, alice, bob := per("rpm", 10, time.Second, 1000), bkt("alice"), bkt("bob")
		st.want(other, true, of(bob, l, 1000))
		st.want(other, true, of(alice, l, 900))
		release := p.hold()
		st.want(s, false, of(alice, l, 100), of(bob, l, 1))
		st.clock.Advance(20 * time.Second)
		st.want(other, true, of(alice, l, 0))
		release()
		s.Flush()
		st.want(other, true, of(alice, l, 300))
		st.want(other, false, of(alice, l, 1))
	})
}

// TestUndoContended checks that an undo gives up after three tries, and leaves the tokens debited: the item that it was
// planned on was another one each time.
func TestUndoContended(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ others, returned int64 }{{2, 4000}, {3, 0}} {
		synctest.Test(t, func(t *testing.T) {
			st := newStage(t)
			s, p := st.join()
			other := st.open(noGuard, noMemory)
			l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
			st.want(other, true, of(bob, l, 10))
			tries := int64(0)
			p.before = func(_ string, in any) error {
				if isUndo(in) {
					if tries++; tries <= tt.others {
						st.want(other, true, of(alice, l, 0))
					}
				}
				return nil
			}
			st.want(s, false, of(alice, l, 4), of(bob, l, 1))
			s.Flush()
			if r := intOf(st.item(alice), "R_rpm"); r != tt.returned || tries != 3 {
				t.Errorf("%d returned in %d tries, want %d in 3", r, tries, tt.returned)
			}
			st.want(s, true, of(alice, l, 1))
			st.wantTakes(alice, tt.others+1) // the refused one is not counted in any case
		})
	}
}

// TestUndoBehind checks that a process whose clock is behind returns nothing once another one, whose clock is ahead, has
// found the bucket full.
func TestUndoBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		other := st.open(noGuard, noMemory, func(c *dynamodb.Config) {
			c.Now = func() time.Time { return st.clock.Now().Add(900 * time.Millisecond) }
		})
		l, alice, bob := per("rps", 1000, time.Second, 1000), bkt("alice"), bkt("bob")
		st.want(other, true, of(bob, l, 1000))
		release := p.hold()
		st.want(s, false, of(alice, l, 500), of(bob, l, 1000))
		st.want(other, true, of(alice, l, 100))
		release()
		s.Flush()
		st.want(other, true, of(alice, l, 900))
		st.want(other, false, of(alice, l, 1))
	})
}

// TestUndoOfOther checks that nothing is returned to a limit that has been refilling faster than when it was debited, even
// if it is the former one again, nor to a bucket that was forgotten.
func TestUndoOfOther(t *testing.T) {
	t.Parallel()
	slow, fast, alice, bob := per("rpm", 10, time.Hour, 10), per("rpm", 10, time.Second, 10), bkt("alice"), bkt("bob")
	for _, tt := range []struct {
		name  string
		since *store.Limit
		f     func(st *stage, other *dynamodb.Store)
	}{
		{"changed", fast, func(st *stage, other *dynamodb.Store) {
			st.want(other, true, store.Debit{Bucket: alice, Epoch: 2, Charges: []store.Charge{{Limit: fast}}})
			st.clock.Advance(time.Second)
		}},
		{"changed and changed back", slow, func(st *stage, other *dynamodb.Store) {
			st.want(other, true, store.Debit{Bucket: alice, Epoch: 2, Charges: []store.Charge{{Limit: fast}}})
			st.clock.Advance(time.Second)
			st.want(other, true, store.Debit{Bucket: alice, Epoch: 3, Charges: []store.Charge{{Limit: slow}}})
		}},
		{"forgotten", slow, func(st *stage, other *dynamodb.Store) {
			if err := other.Forget(st.Context(), alice); err != nil {
				st.Error(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				s, p := st.join()
				other := st.open(noGuard, noMemory)
				st.want(other, true, of(bob, slow, 10))
				release := p.hold()
				st.want(s, false, of(alice, slow, 5), of(bob, slow, 1))
				tt.f(st, other)
				take := func(allowed bool, n int64) {
					st.want(other, allowed, store.Debit{Bucket: alice, Epoch: 3, Charges: []store.Charge{{Limit: tt.since, Amount: 1000 * n}}})
				}
				take(true, 10)
				release()
				s.Flush()
				take(false, 1)
			})
		})
	}
}

// TestUndoAndReturn checks that tokens that others returned meanwhile, and that were refilled long before, cannot be
// returned a second time by an undo.
func TestUndoAndReturn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		per   time.Duration
		after time.Duration
		left  int64
	}{
		{"at once", time.Hour, 0, 0},
		{"a fast bucket", 10 * time.Second, time.Second, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := newStage(t)
				s, p := st.join()
				other := st.open(noGuard, noMemory)
				l, alice, bob := per("rpm", 10, tt.per, 10), bkt("alice"), bkt("bob")
				st.want(other, true, of(alice, l, 5))
				st.clock.Advance(tt.per)
				st.want(other, true, of(bob, l, 10))
				release := p.hold()
				st.want(s, false, of(alice, l, 5), of(bob, l, 10))
				st.settle(other, of(alice, l, -5))
				st.want(other, true, of(alice, l, 10))
				st.clock.Advance(tt.after)
				release()
				s.Flush()
				st.want(other, false, of(alice, l, tt.left+1))
				if tt.left > 0 {
					st.want(other, true, of(alice, l, tt.left))
				}
			})
		})
	}
}

// cutOff makes a caller give up when one of its records was just put, before it is told.
type cutOff struct {
	*dynamotest.Fake
	leave context.CancelFunc
}

func (c cutOff) PutItem(ctx context.Context, in *sdk.PutItemInput, opts ...func(*sdk.Options)) (*sdk.PutItemOutput, error) {
	out, err := c.Fake.PutItem(context.WithoutCancel(ctx), in, opts...)
	c.leave()
	time.Sleep(time.Second) // virtual time: all of this runs in a bubble
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, err
}

// TestSettleAbandoned checks that what is returned under an id comes back even if its caller leaves in the middle: no
// other call can use this id any more.
func TestSettleAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		ctx, leave := context.WithCancel(t.Context())
		s := st.open(noGuard, func(c *dynamodb.Config) { c.Client = cutOff{st.fake, leave} })
		l, alice := per("rpm", 10, time.Hour, 10), bkt("alice")
		st.want(s, true, of(alice, l, 10))
		settle := store.Settle{ID: "lease", Expires: st.clock.Now().Add(time.Hour), Debits: []store.Debit{of(alice, l, -5)}}
		if _, err := s.Settle(ctx, settle); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		other := st.open(noGuard)
		if _, err := other.Settle(t.Context(), settle); !errors.Is(err, store.ErrSettled) {
			t.Errorf("settled twice: %v", err)
		}
		st.want(other, true, of(alice, l, 5))
	})
}

// TestUndoOfSwept checks that nothing is returned to an override that was removed while a write was under way and then
// came back. On a split bucket, that may happen without a new id, and the counters of the former override say nothing
// about the new one.
func TestUndoOfSwept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		other := st.open(noGuard, noMemory)
		l, once, alice, bob := per("rps", 1, time.Second, 10), per("rpm", 1, time.Hour, 1), bkt("alice"), bkt("bob")
		l.Override = true
		st.want(other, true, of(bob, once, 1))
		st.want(other, true, of(alice, l, 10))
		st.settle(other, of(alice, l, -10))
		p.before = func(_ string, in any) error {
			if !isUndo(in) {
				return nil
			}
			p.before = nil
			st.clock.Advance(10 * time.Second)
			name := "rps!10/1/1s"
			_, err := st.fake.UpdateItem(t.Context(), &sdk.UpdateItemInput{
				TableName: new(stageTable), Key: map[string]types.AttributeValue{"PK": st.item(alice)["PK"], "SK": st.item(alice)["SK"]},
				UpdateExpression:         new("REMOVE #l, #d, #r"),
				ExpressionAttributeNames: map[string]string{"#l": "L_" + name, "#d": "D_" + name, "#r": "R_" + name},
			})
			st.want(st.open(noGuard), true, of(alice, l, 10))
			return err
		}
		st.want(s, false, of(alice, l, 5), of(bob, once, 1))
		s.Flush()
		st.want(st.open(noGuard), false, of(alice, l, 1))
	})
}

// TestUndosShareWrites checks that undos that meet in the queue share a write, and that a take that fits only after them
// waits for them.
func TestUndosShareWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		s, p := st.join()
		l, alice, bob := per("rpm", 10, time.Hour, 10), bkt("alice"), bkt("bob")
		st.want(st.open(), true, of(bob, l, 10))
		st.want(s, true, of(alice, l, 1))
		release := p.hold()
		for range 3 {
			st.want(s, false, of(alice, l, 3), of(bob, l, 1)) // the second and third find the first one's undo under way
			synctest.Wait()
		}
		done := make(chan struct{})
		go func() {
			st.want(s, true, of(alice, l, 9))
			close(done)
		}()
		synctest.Wait()
		if n := st.spent(func() { release(); <-done }); n > 4 {
			t.Errorf("%d calls", n)
		}
		if d, r := intOf(st.item(alice), "D_rpm"), intOf(st.item(alice), "R_rpm"); d-r != 10_000 || st.outstanding(alice, "rpm") != 10_000 {
			t.Errorf("%d debited, %d returned, %d outstanding", d, r, st.outstanding(alice, "rpm"))
		}
	})
}
