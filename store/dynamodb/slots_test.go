package dynamodb_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// heal is the heal time of slots here.
const heal = 30 * time.Second

var parallel = store.Slots("parallel", 4000, heal)

// held is a debit of whole slots: taken, or renewed or, if negative, given back of a hold.
func held(b store.Bucket, n int64, h *store.Hold, more ...store.Charge) store.Debit {
	d := of(b, parallel, n)
	d.Charges[0].Hold = h
	d.Charges = append(d.Charges, more...)
	return d
}

// hold takes slots.
func (st *stage) hold(s store.Store, d store.Debit) *store.Hold {
	st.Helper()
	h := st.want(s, true, d).Levels[0].Hold
	if h == nil {
		st.Fatal("nothing is held")
	}
	return h
}

// renewed returns the hold after a renewal of whole slots, or nil if it was refused.
func (st *stage) renewed(s store.Store, b store.Bucket, n int64, h *store.Hold) *store.Hold {
	st.Helper()
	out, err := s.Settle(st.Context(), store.Settle{Debits: []store.Debit{held(b, n, h)}})
	if err != nil {
		st.Fatal(err)
	}
	if l := out.Levels[0]; l.Refused != (l.Hold == nil) {
		st.Errorf("refused %t with %+v", l.Refused, l.Hold)
	}
	return out.Levels[0].Hold
}

// holding checks how many slots are held.
func (st *stage) holding(b store.Bucket, slots int64) {
	st.Helper()
	for _, l := range st.state(b).Limits {
		if l.Limit.IsSlots() && l.Level == 1000*slots {
			return
		}
	}
	st.Errorf("not %d are held: %+v", slots, st.state(b))
}

// TestCostSlots checks what slots cost: a held request that settles makes two writes.
func TestCostSlots(t *testing.T) {
	t.Parallel()
	b, tpm := bkt("alice"), per("tpm", 1000, time.Hour, 1000)
	tokens := func(n int64) store.Charge { return store.Charge{Limit: tpm, Amount: 1000 * n} }
	var h *store.Hold
	for _, tt := range []struct {
		name        string
		calls       int
		write       float64
		left        int64 // slots that are held afterwards
		first, then func(st *stage, s *dynamodb.Store)
	}{
		{
			"taken; given back, with the tokens adjusted", 2, 2, 0,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, held(b, 0, nil, tokens(0))) },
			func(st *stage, s *dynamodb.Store) {
				st.settle(s, held(b, -1, st.hold(s, held(b, 1, nil, tokens(10))), tokens(5)))
			},
		},
		{
			"taken; given back, with tokens returned", 2, 2, 0,
			func(st *stage, s *dynamodb.Store) { st.want(s, true, held(b, 0, nil, tokens(0))) },
			func(st *stage, s *dynamodb.Store) {
				st.settle(s, held(b, -1, st.hold(s, held(b, 1, nil, tokens(10))), tokens(-5)))
			},
		},
		{
			"taken, brand-new bucket", 1, 2, 1, nil,
			func(st *stage, s *dynamodb.Store) { st.hold(s, held(b, 1, nil)) },
		},
		{
			"taken, another process's bucket", 2, 2, 2,
			func(st *stage, _ *dynamodb.Store) { st.hold(st.open(), held(b, 1, nil)) },
			func(st *stage, s *dynamodb.Store) { st.hold(s, held(b, 1, nil)) },
		},
		{
			"renewed", 1, 1, 1,
			func(st *stage, s *dynamodb.Store) {
				h = st.hold(s, held(b, 1, nil))
				st.clock.Set(h.End.Add(-3 * time.Second))
			},
			func(st *stage, s *dynamodb.Store) { st.renewed(s, b, 1, h) },
		},
		{
			"twenty leases renewed", 1, 1, 4,
			func(st *stage, s *dynamodb.Store) {
				h = st.hold(s, held(b, 4, nil))
				st.clock.Set(h.End.Add(-3 * time.Second))
			},
			func(st *stage, s *dynamodb.Store) {
				d := store.Debit{Bucket: b}
				for range 20 {
					d.Charges = append(d.Charges, store.Charge{Limit: parallel, Amount: 200, Hold: h})
				}
				st.settle(s, d)
			},
		},
		{
			"renewed where that changes nothing", 0, 0, 1,
			func(st *stage, s *dynamodb.Store) { h = st.hold(s, held(b, 1, nil)) },
			func(st *stage, s *dynamodb.Store) { st.renewed(s, b, 1, h) },
		},
		{
			"refused, first time", 1, 1, 4,
			func(st *stage, s *dynamodb.Store) { st.hold(s, held(b, 4, nil)) },
			func(st *stage, s *dynamodb.Store) { st.want(s, false, held(b, 1, nil)) },
		},
		{
			"refused again", 0, 0, 4,
			func(st *stage, s *dynamodb.Store) {
				st.hold(s, held(b, 4, nil))
				st.want(s, false, held(b, 1, nil))
			},
			func(st *stage, s *dynamodb.Store) { st.want(s, false, held(b, 1, nil)) },
		},
		{
			"given back in another process, which has not seen the bucket", 2, 2, 0,
			func(st *stage, _ *dynamodb.Store) { h = st.hold(st.open(), held(b, 1, nil)) },
			func(st *stage, s *dynamodb.Store) { st.settle(s, held(b, -1, h)) },
		},
		{
			"given back in another process", 1, 1, 1,
			func(st *stage, s *dynamodb.Store) {
				h = st.hold(st.open(), held(b, 1, nil))
				st.hold(s, held(b, 1, nil))
			},
			func(st *stage, s *dynamodb.Store) { st.settle(s, held(b, -1, h)) },
		},
		{
			"given back after its end", 0, 0, 1,
			func(st *stage, s *dynamodb.Store) {
				h = st.hold(s, held(b, 1, nil))
				st.clock.Set(h.End)
			},
			func(st *stage, s *dynamodb.Store) { st.settle(s, held(b, -1, h)) },
		},
	} {
		st := newStage(t)
		s := st.open()
		if tt.first != nil {
			tt.first(st, s)
		}
		before := st.fake.Capacity().Write
		calls := st.spent(func() { tt.then(st, s) })
		write := st.fake.Capacity().Write - before
		t.Logf("%s: %d calls, %g WCU", tt.name, calls, write)
		if calls != tt.calls || write != tt.write {
			t.Errorf("%s: %d calls, %g WCU; want %d, %g", tt.name, calls, write, tt.calls, tt.write)
		}
		st.holding(b, tt.left)
	}
}

// TestSlotsShared checks that what callers take and give back at the same time shares writes, also across processes
// without a failed condition while their cohort stays.
func TestSlotsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, many := bkt("alice"), store.Slots("parallel", 400_000, heal)
		stores := []*dynamodb.Store{st.open(), st.open()}
		for _, s := range stores {
			st.want(s, true, of(b, many, 1))
		}
		st.slow(50 * time.Millisecond)
		var group sync.WaitGroup
		n := st.spent(func() {
			for i := range 200 {
				s := stores[i%2]
				group.Go(func() {
					out := st.want(s, true, of(b, many, 1))
					d := of(b, many, -1)
					d.Charges[0].Hold = out.Levels[0].Hold
					st.settle(s, d)
				})
			}
			group.Wait()
		})
		if n > 8 { // each: the first take alone, the others, then the returns
			t.Errorf("200 slots taken and given back in %d calls", n)
		}
		st.holding(b, 2)
	})
}

// TestSlotsInDoubt checks that a take is not repeated while its outcome is unknown, and that what was taken for callers
// that have gone is given back.
func TestSlotsInDoubt(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, b := st.open(), bkt("alice")
	rpm := store.Charge{Limit: per("rpm", 100, time.Hour, 100), Amount: 1000}
	st.want(s, true, held(b, 0, nil, rpm))
	end := st.cut(0, true)
	if out, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{held(b, 1, nil, rpm)}}); err == nil {
		t.Errorf("%+v", out)
	}
	if n := end(); n != 1 {
		t.Errorf("%d calls", n)
	}
	st.holding(b, 1)
	st.clock.Advance(2*heal + 4*time.Second)
	st.holding(b, 0)

	ctx, gone := context.WithCancel(t.Context())
	left := make(chan struct{})
	st.fake.Before = func(string, any) error {
		gone()
		<-left
		return nil
	}
	if _, err := s.Take(ctx, store.Take{Debits: []store.Debit{held(b, 4, nil, rpm)}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(left)
	s.Flush()
	st.holding(b, 0)
	st.hold(s, held(b, 4, nil, rpm))
}

// TestSlotsDeleted checks that a hold of an item that was deleted by hand neither renews nor frees what others hold.
func TestSlotsDeleted(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other, b := st.open(), st.open(), bkt("alice")
	h := st.hold(s, held(b, 2, nil))
	key := dynamodb.BucketKey(b, 0)
	if _, err := st.fake.DeleteItem(t.Context(), &sdk.DeleteItemInput{TableName: aws.String(stageTable), Key: key}); err != nil {
		t.Fatal(err)
	}
	st.hold(other, held(b, 3, nil))
	st.settle(s, held(b, -2, h))
	st.holding(b, 3)
	st.clock.Set(h.End.Add(-3 * time.Second))
	if h := st.renewed(s, b, 2, h); h != nil {
		t.Errorf("renewed until %v", h.End)
	}
}

// TestSlotsForgotten checks that a process that has not seen a bucket, or that saw it before slots were taken, does not
// forget what is held, and that nothing is kept once that has ended.
func TestSlotsForgotten(t *testing.T) {
	t.Parallel()
	rpm := store.Charge{Limit: per("rpm", 100, time.Hour, 100), Amount: 1000}
	for _, seen := range []bool{false, true} {
		st := newStage(t)
		s, other, b := st.open(), st.open(), bkt("alice")
		if seen {
			st.want(other, true, held(b, 0, nil, rpm))
		}
		h := st.hold(s, held(b, 4, nil, rpm))
		if err := other.Forget(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		st.holding(b, 4)
		if n := st.outstanding(b, "rpm"); n != 0 {
			t.Errorf("%d outstanding", n)
		}
		st.want(other, false, held(b, 1, nil, rpm))
		st.settle(s, held(b, -1, h))
		h = st.hold(other, held(b, 1, nil, rpm))
		st.clock.Set(h.End.Add(2*time.Second - 1)) // a clock that is behind still has them
		if err := s.Forget(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		st.want(other, false, held(b, 1, nil, rpm))
		st.clock.Advance(2*heal + 4*time.Second)
		if err := s.Forget(t.Context(), b); err != nil || st.item(b) != nil {
			t.Errorf("%v, left %v", err, st.item(b))
		}
	}
}

// TestSlotsAhead checks that an end that a clock far ahead has set is corrected, and counted.
func TestSlotsAhead(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	ahead := st.open(func(c *dynamodb.Config) {
		c.Now = func() time.Time { return st.clock.Now().Add(12 * time.Hour) }
	})
	s, b := st.open(), bkt("alice")
	far := st.hold(ahead, held(b, 2, nil))
	h := st.hold(s, held(b, 1, nil))
	if h.End.After(st.clock.Now().Add(3*heal)) || far.End.Before(st.clock.Now().Add(12*time.Hour)) {
		t.Errorf("until %v, then %v", far.End, h.End)
	}
	corrected := 0.0
	for _, m := range s.Measures() {
		if m.Name == "slots_corrected" {
			corrected = m.Value
		}
	}
	if corrected != 1 {
		t.Errorf("%g corrections", corrected)
	}
	st.want(s, false, held(b, 2, nil))
	st.clock.Advance(3*heal + 4*time.Second)
	st.holding(b, 0)
}

// TestSlotsSplit checks that a bucket of which slots are held is not split; and that slots of one that was split before
// are all in one item.
func TestSlotsSplit(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, other, b := st.open(noGuard, noMemory), st.open(noGuard, noMemory), bkt("alice")
	rpm := per("rpm", 100, time.Hour, 100)
	tokens := func(n int64) store.Charge { return store.Charge{Limit: rpm, Amount: 1000 * n} }
	st.want(s, true, of(b, rpm, 8))
	split := func(want int) {
		t.Helper()
		if n, err := s.Split(t.Context(), b, 4); n != want || err != nil {
			t.Errorf("%d shards, %v", n, err)
		}
	}
	split(4)
	newer := func(d store.Debit) store.Debit {
		d.Epoch = 2
		return d
	}
	var holds []*store.Hold
	for i := range 4 {
		holds = append(holds, st.hold([]*dynamodb.Store{s, other}[i%2], newer(held(b, 1, nil, tokens(20)))))
	}
	for _, s := range []*dynamodb.Store{s, other} {
		st.want(s, false, newer(held(b, 1, nil, tokens(1))))
		s.Flush()
	}
	st.holding(b, 4)
	if n := st.outstanding(b, "rpm") / 1000; n < 80 || n > 88 {
		t.Errorf("%d tokens are outstanding", n)
	}
	st.settle(other, newer(held(b, -1, holds[0], tokens(-20))))
	st.want(s, false, newer(held(b, 1, nil, tokens(50)))) // no tokens: no slot
	s.Flush()
	st.holding(b, 3)
	st.clock.Set(holds[1].End.Add(-3 * time.Second))
	if h := st.renewed(s, b, 3, holds[1]); h == nil || !h.End.After(holds[1].End) {
		t.Errorf("renewed: %+v", h)
	}
	st.want(other, false, newer(held(b, 2, nil, tokens(1))))
	removed := of(b, rpm, 1)
	removed.Epoch = 3
	st.want(other, true, removed)
	st.clock.Advance(2*heal + 4*time.Second)
	st.holding(b, 0)

	b = bkt("bob")
	st.hold(s, held(b, 1, nil, tokens(1)))
	split(1)
}

// TestSlotsUnknown checks that the item of a bucket with slots has what a version without them does not accept: the
// parameters of a limit that are none of a rate, a quota or a balance.
func TestSlotsUnknown(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b := bkt("alice")
	st.hold(st.open(), held(b, 1, nil))
	if p, _ := st.item(b)["P_parallel%slots"].(*types.AttributeValueMemberS); p == nil || p.Value != "4/slots/30s" {
		t.Errorf("%v", st.item(b))
	}
}

// TestSlotsElsewhere lets 16 processes take half of the slots there are and give them back in other processes than took
// them. Hardly any take is refused, and hardly any write repeated.
func TestSlotsElsewhere(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	synctest.Test(t, func(t *testing.T) {
		st := newStage(t)
		b, l := bkt("alice"), store.Slots("parallel", 20_000, heal)
		var stores []*dynamodb.Store
		for range 16 {
			stores = append(stores, st.open(st.flow()))
		}
		for _, s := range stores {
			st.want(s, true, of(b, l, 0))
		}
		st.slow(2 * time.Millisecond)
		var group sync.WaitGroup
		var refused atomic.Int64
		const takes = 3500
		calls := st.spent(func() {
			for i := range takes {
				time.Sleep(10 * time.Millisecond) // real time: that of the bubble
				group.Go(func() {
					out := st.take(stores[i%16], of(b, l, 1))
					if !out.Allowed {
						refused.Add(1)
						return
					}
					time.Sleep(100 * time.Millisecond) // real time: that of the bubble
					d := of(b, l, -1)
					d.Charges[0].Hold = out.Levels[0].Hold
					st.settle(stores[(i*7+3)%16], d)
				})
			}
			group.Wait()
		})
		t.Logf("%d takes, %d refused, %d calls", takes, refused.Load(), calls)
		if refused.Load() > takes/100 || calls > takes*2*21/20 {
			t.Errorf("%d of %d takes were refused, in %d calls", refused.Load(), takes, calls)
		}
		for _, l := range st.state(b).Limits {
			if l.Level != 0 || l.Debited != l.Returned {
				t.Errorf("left: %+v", l)
			}
		}
	})
}
