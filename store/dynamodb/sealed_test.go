package dynamodb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/store"
)

// TestSplitSealed checks that no shard of a sealed bucket admits anything.
func TestSplitSealed(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{true, false} { // the process that seals has seen that the bucket is split
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, _ := st.join()
		other, _ := st.join()
		st.want(s, true, of(b, l, 1))
		st.split(other, b, 4)
		if seen {
			st.split(s, b, 4)
		}
		if _, err := s.Take(t.Context(), store.Seal(b)); err != nil {
			t.Fatal(err)
		}
		for k := range 4 {
			other.Pick(k)
			out, err := other.Take(t.Context(), store.Take{Debits: []store.Debit{of(b, l, 1)}})
			if !errors.Is(err, store.ErrStaleLimits) {
				t.Errorf("shard %d: allowed %t, %v", k, out.Allowed, err)
			}
		}
	}
}

// TestSplitSealedPartly checks that a bucket does not count as sealed while one of its shards is not, and can then be
// sealed again.
func TestSplitSealedPartly(t *testing.T) {
	t.Parallel()
	for k := range 4 {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, p := st.join()
		other, _ := st.join()
		st.want(s, true, of(b, l, 1))
		st.split(s, b, 4)
		p.before = func(_ string, in any) error {
			if shardOf(in) == k {
				return &smithy.GenericAPIError{Code: "AccessDeniedException"}
			}
			return nil
		}
		seal := func(want bool) {
			_, err := s.Take(t.Context(), store.Seal(b))
			if state := st.state(b); (err == nil) != want || state.Sealed() != want {
				t.Errorf("shard %d: error %v, sealed %t, want %t", k, err, state.Sealed(), want)
			}
		}
		seal(false)
		other.Pick(k)
		st.want(other, true, of(b, l, 1))
		p.before = nil
		seal(true)
	}
}

// TestSealedCost checks that takes of a sealed bucket cost nothing, alone or beside another, once each of its shards has
// shown that it is sealed.
func TestSealedCost(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		st := newStage(t)
		b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
		s, other := st.open(noGuard), st.open(noGuard)
		st.want(s, true, of(b, l, 1))
		if n > 1 {
			st.split(s, b, n)
		}
		st.want(other, true, of(b, l, 1))
		if _, err := s.Take(t.Context(), store.Seal(b)); err != nil {
			t.Fatal(err)
		}
		for _, debits := range [][]store.Debit{{of(b, l, 1)}, {of(bkt("parent"), l, 1), of(b, l, 1)}} {
			takes := func() {
				for k := range 8 * n {
					other.Pick(k % n)
					if _, err := other.Take(t.Context(), store.Take{Debits: debits}); !errors.Is(err, store.ErrStaleLimits) {
						t.Errorf("%d shards: %v", n, err)
					}
				}
			}
			takes()
			if calls := st.spent(takes); calls != 0 {
				t.Errorf("%d shards, %d buckets: %d calls for %d takes", n, len(debits), calls, 8*n)
			}
		}
	}
}
