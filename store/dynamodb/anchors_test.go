package dynamodb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// These tests cover mistakes that limiters on DynamoDB have been seen to make, and that a store like this one could make.

// TestSlowLimitNotStarved checks that a slow limit beside a fast one refills, however often the bucket is written to.
func TestSlowLimitNotStarved(t *testing.T) {
	t.Parallel()
	unraced(t)
	st := newStage(t)
	s := st.open()
	fast, slow, alice := per("fast", 100, time.Second, 100), per("slow", 1000, day, 1000), bkt("alice")
	d := of(alice, fast, 5)
	d.Charges = append(d.Charges, store.Charge{Limit: slow, Amount: 1_000_000})
	st.want(s, true, d)
	d.Charges[1].Amount = 0
	for range 1200 { // a minute
		st.clock.Advance(50 * time.Millisecond)
		st.want(s, true, d)
	}
	if back := 1_000_000 - st.outstanding(alice, "slow"); back != 694 {
		t.Errorf("%d millitokens refilled, want 694", back)
	}
}

// TestSmallSteps checks that refilling in small steps, with a write at each, gives exactly as much as refilling in one.
func TestSmallSteps(t *testing.T) {
	t.Parallel()
	unraced(t)
	st := newStage(t)
	a, b := st.open(noGuard, noMemory), st.open(noGuard, noMemory)
	l, alice := per("l", 1000, 7*time.Second, 1000), bkt("alice")
	st.want(a, true, of(alice, l, 1000))
	begin := st.reading(l)
	admitted := int64(0)
	for i := range 600 {
		st.clock.Advance(time.Millisecond)
		s := []*dynamodb.Store{a, b}[i%2]
		if st.take(s, of(alice, l, 1)).Allowed {
			admitted++
		}
	}
	if issued := (st.reading(l) - begin) / 1000; admitted != issued {
		t.Errorf("%d admitted of %d issued", admitted, issued)
	}
}

// TestLimitAdded checks that a limit that is added to a live bucket works, even for callers that do not charge it.
func TestLimitAdded(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	a, b := st.open(noGuard), st.open(noGuard)
	rpm, tpm, alice := per("rpm", 10, time.Hour, 10), per("tpm", 10, time.Hour, 10), bkt("alice")
	st.want(a, true, at(1, of(alice, rpm, 1)))
	both := of(alice, rpm, 1)
	both.Charges = append(both.Charges, store.Charge{Limit: tpm})
	st.want(b, true, at(2, both))
	both.Charges[1].Amount = 10_000
	st.want(a, true, at(2, both))
	both.Charges[1].Amount = 1
	st.want(b, false, at(2, both))
}

// TestLimitNames checks that any text works as the name of a limit.
func TestLimitNames(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	alice := bkt("alice")
	var d store.Debit
	names := []string{"a-b", "a.b", "wcu", "ttl", "id", "s", "L_x", "#0", ":0", "!", "%21", "size", "é", "日本", " ", "PK"}
	for i, name := range names {
		d.Charges = append(d.Charges, store.Charge{Limit: per(name, 10, time.Hour, 10), Amount: int64(i+1) * 100})
	}
	d.Bucket = alice
	st.want(s, true, d)
	st.want(st.open(noGuard), true, d)
	for i, name := range names {
		if n := st.outstanding(alice, name); n != int64(i+1)*200 {
			t.Errorf("%q: %d outstanding", name, n)
		}
	}
}

// TestDebtEverywhere checks that debt in a limit that is not charged refuses the same request on every path.
func TestDebtEverywhere(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	rpm, tpm, alice := per("rpm", 10, time.Hour, 10), per("tpm", 10, time.Hour, 10), bkt("alice")
	d := of(alice, rpm, 1)
	d.Charges = append(d.Charges, store.Charge{Limit: tpm})
	st.want(s, true, d)
	st.settle(s, of(alice, tpm, 11))
	st.want(s, false, d)         // seen
	st.want(s, false, d)         // remembered
	st.want(st.open(), false, d) // never seen
	st.want(s, false, d, of(bkt("bob"), rpm, 1))
	s.Flush()
	if n := st.outstanding(bkt("bob"), "rpm"); n != 0 {
		t.Errorf("bob has %d outstanding", n)
	}
}

// TestSkewNotBanked checks that a caller whose clock is behind credits no time twice, and that one whose clock is ahead
// takes nothing from the others beyond what the difference is worth.
func TestSkewNotBanked(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	rps, alice := per("rps", 10, time.Second, 10), bkt("alice")
	behind := st.open(noGuard, noMemory, func(c *dynamodb.Config) {
		now := c.Now
		c.Now = func() time.Time { return now().Add(-time.Second) }
	})
	right := st.open(noGuard, noMemory)
	admitted := 0
	for i := range 400 {
		st.clock.Advance(10 * time.Millisecond)
		if st.take([]*dynamodb.Store{right, behind}[i%2], of(alice, rps, 1)).Allowed {
			admitted++
		}
	}
	if most := 10 + 10*4 + 10*1; admitted > most || admitted < 40 {
		t.Errorf("%d admitted, at most %d", admitted, most)
	}
}

// TestCascadeLegFails checks that if one bucket of a take ends in an error, the debits of the others are returned.
func TestCascadeLegFails(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	rpm, child, parent := per("rpm", 10, time.Hour, 10), bkt("child"), bkt("parent")
	st.fake.Before = func(_ string, in any) error {
		if u, ok := in.(*sdk.UpdateItemInput); ok && strings.Contains(u.Key["PK"].(*types.AttributeValueMemberS).Value, "#parent#") {
			return &types.ResourceNotFoundException{}
		}
		return nil
	}
	for range 5 {
		_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(child, rpm, 1), of(parent, rpm, 1)}})
		var typed *store.Error
		if !errors.As(err, &typed) || typed.Hint == "" || !strings.Contains(err.Error(), "parent") {
			t.Error(err)
		}
	}
	s.Flush()
	if n := st.outstanding(child, "rpm"); n != 0 {
		t.Errorf("the child has %d outstanding", n)
	}
}

// TestCascadeNewChild checks that a new child of a contended parent is admitted if both have room.
func TestCascadeNewChild(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	rpm, parent := per("rpm", 100, time.Hour, 100), bkt("parent")
	s := st.open(noGuard)
	st.want(s, true, of(parent, rpm, 1))
	var others []*dynamodb.Store
	for range 5 {
		others = append(others, st.open(noGuard))
	}
	var n atomic.Int64
	st.fake.Before = func(string, any) error {
		if i := n.Add(1); i <= 5 { // the parent is written to, just before each write
			st.take(others[i-1], of(parent, rpm, 1))
		}
		return nil
	}
	st.want(s, true, of(bkt("child"), rpm, 1), of(parent, rpm, 1))
}

// TestGoneMeanwhile checks that a bucket that expires between two debits is created again, without a refusal.
func TestGoneMeanwhile(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.open(noGuard)
	rps, alice := per("rps", 10, time.Second, 10), bkt("alice")
	st.want(s, true, of(alice, rps, 1))
	id := st.state(alice).ID
	st.clock.Advance(10 * day)
	st.fake.Sweep(st.clock.Now())
	st.want(s, true, of(alice, rps, 10))
	if now := st.state(alice).ID; now == id || now == 0 {
		t.Errorf("born as %d, then %d", id, now)
	}
	st.clock.Advance(10 * day)
	st.fake.Sweep(st.clock.Now())
	st.settle(s, of(alice, rps, -1)) // creates nothing
	if st.item(alice) != nil {
		t.Error("a return made a bucket")
	}
}

// TestHungWrite checks that a call that hangs delays no caller for longer than configured.
func TestHungWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		hung := make(chan struct{})
		st.fake.Before = func(string, any) error { <-hung; return errLost }
		s := st.open(func(c *dynamodb.Config) { c.Client = deaf{c.Client} })
		begun := time.Now()
		_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(bkt("alice"), per("rps", 1, time.Second, 1), 1)}})
		if took := time.Since(begun); err == nil || took > 4*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		close(hung)
	})
}

// TestMemoryBounded checks that the number of buckets that are remembered is bounded.
func TestMemoryBounded(t *testing.T) {
	t.Parallel()
	unraced(t)
	st := newStage(t)
	s := st.open(func(c *dynamodb.Config) { c.MaxBuckets = 64 })
	rpm := per("rpm", 10, time.Hour, 10)
	for i := range 150 {
		st.want(s, true, of(bkt(fmt.Sprint(i)), rpm, 7))
	}
	if n := s.Remembered(); n > 64 {
		t.Errorf("%d buckets remembered", n)
	}
	for i := range 150 {
		st.want(s, false, of(bkt(fmt.Sprint(i)), rpm, 7))
	}
}
