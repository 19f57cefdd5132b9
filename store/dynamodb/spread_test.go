package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// halved returns a bucket of 60 a minute, of which 20 were debited before it was split in four, one second ago.
func halved(t *testing.T) (st *stage, s *dynamodb.Store, b store.Bucket, l *store.Limit) {
	st = newStage(t)
	b, l = bkt("a"), per("rpm", 60, time.Minute, 60)
	s, _ = st.join()
	st.want(s, true, of(b, l, 20))
	st.split(s, b, 4)
	st.clock.Advance(3 * time.Millisecond) // the new halves lack three millitokens
	return st, s, b, l
}

// rooms returns what each shard has left of a limit; negative in debt.
func (st *stage) rooms(b store.Bucket, l *store.Limit) (rooms []int64) {
	n := st.shards(b)
	for k := range n {
		share := func(x int64) int64 { return (x + int64(k)) / int64(n) }
		rooms = append(rooms, share(l.Burst)-clock.Outstanding(intOf(st.shard(b, k), "L_"+l.Name), share(st.reading(l))))
	}
	return rooms
}

// TestSpanning checks that a request for which no shard has room is taken from several, all or nothing.
func TestSpanning(t *testing.T) {
	t.Parallel()
	st, s, b, l := halved(t)
	st.want(s, false, of(b, l, 41))
	s.Flush()
	if owed := st.outstanding(b, "rpm"); owed != 20_000 {
		t.Fatalf("%d outstanding after a refusal, want 20000", owed)
	}
	st.want(s, false, of(b, l, 61)) // never
	st.want(s, true, of(b, l, 38))
	st.want(s, true, of(b, l, 1)) // half of it from one shard, half from another
	st.want(s, true, of(b, l, 1))
	st.want(s, false, of(b, l, 1))
	s.Flush()
	if rooms := st.rooms(b, l); slices.Max(rooms) != 0 || slices.Min(rooms) != 0 {
		t.Errorf("rooms %v, want none", rooms)
	}
	// A process that has seen nothing finds out.
	st.clock.Advance(30 * time.Second)
	fresh, _ := st.join()
	st.want(fresh, true, of(b, l, 25))
	st.want(fresh, false, of(b, l, 6))
	st.want(fresh, true, of(b, l, 5))
}

// TestRoomierOfTwo checks that shards are used evenly, because of two picked at random a take goes to the roomier. If
// one were picked at random, they would differ by tens of takes.
func TestRoomierOfTwo(t *testing.T) {
	t.Parallel()
	unraced(t)
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60_000, time.Minute, 60_000)
	s, _ := st.join()
	st.want(s, true, of(b, l, 1))
	st.split(s, b, 4)
	for range 2000 {
		st.want(s, true, of(b, l, 1))
	}
	if rooms := st.rooms(b, l); slices.Max(rooms)-slices.Min(rooms) > 10_000 {
		t.Errorf("rooms %v", rooms)
	}
}

// TestSpanningRefused checks that once it is known that there is not enough room, a refusal makes no call.
func TestSpanningRefused(t *testing.T) {
	t.Parallel()
	st, _, b, l := halved(t)
	s, _ := st.join(func(c *dynamodb.Config) { c.RejectionTTL = time.Second })
	for _, n := range []int64{50, 41} {
		st.want(s, false, of(b, l, n))
		s.Flush()
	}
	if n := st.spent(func() {
		for range 100 {
			st.want(s, false, of(b, l, 50))
		}
	}); n > 10 {
		t.Errorf("%d calls of 100 refusals", n)
	}
}

// TestForcedSpread checks that no shard has room left while another owes.
func TestForcedSpread(t *testing.T) {
	t.Parallel()
	for _, force := range []int64{1, 40, 41, 100, 1000} {
		for _, how := range []string{"settle", "take"} {
			st, s, b, l := halved(t)
			if how == "take" {
				d := of(b, l, force)
				d.Charges[0].Force = true
				st.want(s, true, d)
			} else {
				st.settle(s, of(b, l, force))
			}
			if owed := st.outstanding(b, "rpm"); owed != 20_000+1000*force {
				t.Errorf("%d outstanding after a forced %d", owed, force)
			}
			rooms := st.rooms(b, l)
			if most, least := slices.Max(rooms), slices.Min(rooms); most > 0 && least < 0 || least < -300_000 {
				t.Errorf("%s of %d leaves rooms %v", how, force, rooms)
			}
			st.want(s, force < 40, of(b, l, 1))
		}
	}
}

// TestReturnsSpread checks that returns go to shards that have them outstanding.
func TestReturnsSpread(t *testing.T) {
	t.Parallel()
	st, s, b, l := halved(t)
	st.want(s, true, of(b, l, 38))
	st.settle(s, of(b, l, -50))
	if owed := st.outstanding(b, "rpm"); owed != 8000 {
		t.Errorf("%d outstanding, want 8000", owed)
	}
	state := st.state(b)
	if l := state.Limits[0]; l.Debited != 58_000 || l.Returned != 50_000 {
		t.Errorf("state %+v", l)
	}
	// A forced debit and a return at once.
	st.settle(s, store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: l, Amount: 1000}, {Limit: l, Amount: -2000}}})
	if owed := st.outstanding(b, "rpm"); owed != 7000 {
		t.Errorf("%d outstanding, want 7000", owed)
	}
}

// TestElsewhere checks that a refusal by one shard is not a refusal by the bucket.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	for range 20 { // which shard is asked first is random
		st, s, b, l := halved(t)
		for n := range 40 {
			if out := st.take(s, of(b, l, 1)); !out.Allowed {
				t.Fatalf("refused after %d of 40: %v", n, st.rooms(b, l))
			}
		}
		out := st.want(s, false, of(b, l, 1))
		if lv := out.Levels[0]; !lv.Refused || lv.Level != st.reading(l)+60_000 {
			t.Fatalf("levels %+v, the clock reads %d", out.Levels, st.reading(l))
		}
	}
}

// TestRefusedTells checks that if the bucket has room but no shard has enough, alone or together in time, the levels
// still show a refusal.
func TestRefusedTells(t *testing.T) {
	t.Parallel()
	st, s, b, l := halved(t)
	d := of(b, l, 30)
	d.Charges = append(d.Charges, store.Charge{Limit: per("tpm", 10, time.Minute, 10), Amount: 11_000})
	if out := st.take(s, d); out.Allowed || len(out.Levels) != 2 || out.Levels[0].Refused == out.Levels[1].Refused {
		t.Errorf("%+v", out)
	}
}

// TestSplitForgotten checks that a bucket that was split and forgotten is full, split as before, not listed, and starts
// with shard 0.
func TestSplitForgotten(t *testing.T) {
	t.Parallel()
	st, s, b, l := halved(t)
	st.must(s.Forget(t.Context(), b))
	if state := st.state(b); state.ID != 0 || len(state.Limits) != 0 {
		t.Errorf("state %+v", state)
	}
	for k := range 4 {
		if it := st.shard(b, k); intOf(it, "sc") != 4 || it["GP"] != nil || it["id"] != nil {
			t.Errorf("shard %d: %v", k, it)
		}
	}
	listed := func() int {
		page, err := s.Buckets(t.Context(), store.BucketQuery{Namespace: "n"})
		st.must(err)
		return len(page.States)
	}
	if n := listed(); n != 0 {
		t.Errorf("%d buckets listed", n)
	}
	st.must(s.Forget(t.Context(), b)) // again
	fresh, _ := st.join()
	st.must(fresh.Forget(t.Context(), b)) // by a process that knows nothing of it
	st.want(s, true, of(b, l, 1))
	if state := st.state(b); state.ID == 0 || listed() != 1 {
		t.Errorf("state %+v, %d listed", state, listed())
	}
	st.want(s, true, of(b, l, 59))
	st.want(s, false, of(b, l, 1))
	if owed := st.outstanding(b, "rpm"); owed != 60_000 {
		t.Errorf("%d outstanding", owed)
	}
}

// TestForgetThrottled checks that temporary errors do not keep a bucket from being forgotten.
func TestForgetThrottled(t *testing.T) {
	t.Parallel()
	st, s, b, _ := halved(t)
	fresh, p := st.join()
	p.throttle(2, "")
	st.must(fresh.Forget(t.Context(), b))
	if state := st.state(b); state.ID != 0 {
		t.Errorf("state %+v", state)
	}
	st.must(s.Close())
}

// TestFewerShards checks that a process that does not know yet that the bucket was split finds out by its first write.
func TestFewerShards(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	s, _ := st.join()
	stale, _ := st.join()
	st.want(s, true, of(b, l, 10))
	st.want(stale, true, of(b, l, 10))
	st.split(s, b, 4)
	n := 0
	for range 60 {
		if st.take(stale, of(b, l, 1)).Allowed {
			n++
		}
	}
	if n < 39 || n > 40 || stale.Shards(b) != 4 {
		t.Errorf("%d admitted by one that was stale, want 40, by %d shards", n, stale.Shards(b))
	}
}

// TestSplitLimitsChange checks that every shard follows new limits, and keeps what it owes.
func TestSplitLimitsChange(t *testing.T) {
	t.Parallel()
	st, s, b, l := halved(t)
	for i, burst := range []int64{120, 60, 30} {
		to := per("rpm", burst, time.Minute, burst)
		d := of(b, to, 0)
		d.Epoch = uint64(i + 2)
		for range 300 { // until all shards have seen it
			st.take(s, d)
		}
		if owed := st.outstanding(b, "rpm"); owed < 20_000 || owed > 20_000+4*int64(i+1) {
			t.Errorf("%d outstanding under the limit of %d, want 20000", owed, burst)
		}
		for k := range 4 {
			if p := st.shard(b, k)["P_rpm"].(*types.AttributeValueMemberS).Value; p != fmt.Sprintf("%d/%d/60s", burst, burst) {
				t.Errorf("shard %d follows %s", k, p)
			}
		}
	}
	// Older ones do not come back.
	d := of(b, l, 1)
	if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{d}}); !errors.Is(err, store.ErrStaleLimits) {
		t.Errorf("error %v", err)
	}
}

// TestSplitOverrides checks that overrides are split like other limits, and swept when they are full.
func TestSplitOverrides(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	over := func(i int64) *store.Limit {
		o := per("tpm", 100+i, time.Minute, 100+i)
		o.Override = true
		return o
	}
	with := func(o *store.Limit, n int64) store.Debit {
		return store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: l}, {Limit: o, Amount: 1000 * n}}}
	}
	s, _ := st.join()
	st.want(s, true, with(over(0), 60))
	st.split(s, b, 2)
	st.clock.Advance(time.Millisecond) // the new half lacks a millitoken
	st.want(s, false, with(over(0), 41))
	st.want(s, true, with(over(0), 40))
	st.want(s, false, with(over(0), 1))
	st.clock.Advance(time.Hour)
	for i := range int64(40) {
		st.want(s, true, with(over(i), 1))
		st.want(s, true, of(b, l, 1))
		st.clock.Advance(time.Second)
	}
	if n := len(st.state(b).Limits); n > 1+2*store.MaxOverrides {
		t.Errorf("%d limits", n)
	}
}

// TestSweepMeanwhile checks that overrides are not swept because of a sight from before the bucket was split, when they
// were full.
func TestSweepMeanwhile(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
	over := func(i int64) *store.Limit {
		o := per("tpm", 100+i, time.Minute, 100+i)
		o.Override = true
		return o
	}
	with := func(o *store.Limit, n int64) store.Debit {
		return store.Debit{Bucket: b, Epoch: 1, Charges: []store.Charge{{Limit: l}, {Limit: o, Amount: 1000 * n}}}
	}
	s, p := st.join()
	peer, _ := st.join()
	for i := range int64(store.MaxOverrides) {
		st.want(s, true, with(over(i), 1))
	}
	st.clock.Advance(time.Hour)
	st.want(peer, true, of(b, l, 1))
	p.before = func(string, any) error {
		p.before = nil
		st.want(peer, true, with(over(0), 100))
		st.split(peer, b, 2)
		return nil
	}
	if _, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{with(over(99), 1)}}); err != nil && !errors.Is(err, store.ErrTooManyOverrides) {
		t.Fatal(err)
	}
	if st.want(peer, false, with(over(0), 1)).Allowed {
		t.Error("an override that was used up is full again")
	}
}

// TestUnseenLimitCounts checks that a limit that a settle adds is counted, so that no split leaves it behind.
func TestUnseenLimitCounts(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	b, l, other := bkt("a"), per("rpm", 60, time.Minute, 60), per("tpm", 100, time.Minute, 100)
	s, p := st.join()
	st.want(s, true, of(b, l, 20))
	p.before = func(op string, in any) error {
		p.before = nil
		fresh, _ := st.join()
		st.settle(fresh, of(b, other, 80))
		return nil
	}
	st.split(s, b, 2)
	if owed := st.outstanding(b, "tpm"); owed < 80_000 || owed > 80_001 {
		t.Errorf("%d outstanding of the limit that came meanwhile, want 80000", owed)
	}
}

// TestWritesStayInside checks that the count of writes never appears as a limit, and refuses nothing.
func TestWritesStayInside(t *testing.T) {
	t.Parallel()
	st, s, b, l := halved(t)
	key := map[string]types.AttributeValue{"PK": st.shard(b, 0)["PK"], "SK": st.shard(b, 0)["SK"]}
	if _, err := st.fake.UpdateItem(t.Context(), &sdk.UpdateItemInput{
		TableName: new(stageTable), Key: key, UpdateExpression: new("ADD wc :n"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "1000000000000"}},
	}); err != nil {
		t.Fatal(err)
	}
	st.want(s, true, of(b, l, 40))
	for _, l := range st.state(b).Limits {
		if l.Limit.Name != "rpm" {
			t.Errorf("limit %q shows", l.Limit.Name)
		}
	}
}
