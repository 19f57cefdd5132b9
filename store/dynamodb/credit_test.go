package dynamodb_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

func (st *stage) credit(s *dynamodb.Store, b store.Bucket, tokens int64, id string) store.Credited {
	st.Helper()
	out, err := s.Credit(st.Context(), store.Credit{Bucket: b, Limit: "credits", Amount: 1000 * tokens, ID: id})
	if err != nil {
		st.Fatal(err)
	}
	return out
}

// TestCreditCost checks that a credit costs a transaction of two items, and a read; and a take of a balance one write.
func TestCreditCost(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, alice, credits := st.open(), bkt("alice"), store.Balance("credits")
	for i, tt := range []struct {
		name        string
		calls       int
		read, write float64
		do          func()
	}{
		{"first credit", 2, 1, 5, func() { st.credit(s, alice, 10, "a") }}, // with its entry in the index
		{"first take", 2, 0, 2, func() { st.want(s, true, of(alice, credits, 1)) }},
		{"take", 1, 0, 1, func() { st.want(s, true, of(alice, credits, 1)) }},
		{"credit", 2, 1, 4, func() { st.credit(s, alice, 10, "b") }},
		{"take again", 1, 0, 1, func() { st.want(s, true, of(alice, credits, 1)) }},
		{"repeated credit", 2, 1, 4, func() { st.credit(s, alice, 10, "b") }},
	} {
		before := st.fake.Capacity()
		calls := st.spent(tt.do)
		after := st.fake.Capacity()
		if read, write := after.Read-before.Read, after.Write-before.Write; calls != tt.calls || read != tt.read || write != tt.write {
			t.Errorf("%d, %s: %d calls, %g RCU, %g WCU; want %d, %g, %g", i, tt.name, calls, read, write, tt.calls, tt.read, tt.write)
		}
	}
}

// TestCreditSplit checks that the shards of a bucket have together what was credited, before it was split or after, and
// that every token of it can be debited.
func TestCreditSplit(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 16} {
		st := newStage(t)
		s, alice, credits := st.open(noMemory), bkt("alice"), store.Balance("credits")
		st.credit(s, alice, 101, "a")
		st.want(s, true, of(alice, credits, 1))
		st.split(s, alice, n)
		if out := st.credit(s, alice, 50, "b"); out.Level != -150_000 {
			t.Errorf("%d shards: level %d", n, out.Level)
		}
		st.want(s, true, of(alice, credits, 70))
		spent := int64(70)
		for st.take(s, of(alice, credits, 1)).Allowed {
			spent++
		}
		if out := st.credit(s, alice, 50, "b"); spent != 150 || out.Level != 0 || !out.Before {
			t.Errorf("%d shards: %d of 150 spent, level %d", n, spent, out.Level)
		}
		st.clock.Advance(50 * 366 * 24 * time.Hour)
		st.want(s, false, of(alice, credits, 1))
	}
}

// TestCreditUndone checks that a debit that another bucket's refusal undoes is given back in full, also if a credit
// came in between.
func TestCreditUndone(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s, p := st.join()
	alice, parent, credits, rpm := bkt("alice"), bkt("parent"), store.Balance("credits"), per("rpm", 1, time.Hour, 1)
	other, _ := st.join()
	st.credit(s, alice, 10, "a")
	st.want(s, true, of(alice, credits, 1), of(parent, rpm, 0))
	st.want(other, true, of(parent, rpm, 1))
	p.after = func(string, any) error {
		p.after = nil
		st.credit(other, alice, 7, "b")
		return nil
	}
	st.want(s, false, of(alice, credits, 5), of(parent, rpm, 1))
	s.Flush()
	if out := st.credit(s, alice, 7, "b"); out.Level != -16_000 {
		t.Errorf("level %d", out.Level)
	}
}

// TestForgetKeepsCredits checks that a process that has not seen a balance does not delete it.
func TestForgetKeepsCredits(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 4} {
		st := newStage(t)
		s, alice := st.open(), bkt("alice")
		st.credit(s, alice, 10, "a")
		st.split(s, alice, n)
		st.must(st.open().Forget(t.Context(), alice))
		if out := st.credit(s, alice, 10, "a"); out.Level != -10_000 || !out.Before {
			t.Errorf("%d shards: %+v", n, out)
		}
		st.want(st.open(), true, of(alice, store.Balance("credits"), 10))
	}
}

// TestCreditForgetsRefusals checks that a take after a credit is not refused by what was seen before it: neither by a write
// that was under way, nor by the credit's own read, if a write has shown a later item.
func TestCreditForgetsRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		op string // whose answer comes late
		// what the process does before that answer comes, and last
		first, meanwhile func(st *stage, s *dynamodb.Store, b store.Bucket)
		last             int64
	}{
		"write under way": {
			"UpdateItem",
			func(st *stage, s *dynamodb.Store, b store.Bucket) {
				st.want(s, false, of(b, store.Balance("credits"), 15))
			},
			func(st *stage, s *dynamodb.Store, b store.Bucket) { st.credit(s, b, 10, "b") }, 15,
		},
		"late read": {
			"BatchGetItem",
			func(st *stage, s *dynamodb.Store, b store.Bucket) { st.credit(s, b, 10, "b") },
			func(st *stage, s *dynamodb.Store, b store.Bucket) {
				st.settle(s, of(b, store.Balance("credits"), -30))
				st.want(s, false, of(b, store.Balance("credits"), 60))
			}, 40,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			s, alice := st.open(noGuard), bkt("alice")
			st.credit(s, alice, 10, "a")
			st.want(s, true, of(alice, store.Balance("credits"), 0))
			came := false
			st.fake.After = func(op string, _, _ any) error {
				if op == tt.op && !came {
					came = true
					tt.meanwhile(st, s, alice)
				}
				return nil
			}
			if tt.first(st, s, alice); !came {
				t.Fatal("nothing came in between")
			}
			st.want(s, true, of(alice, store.Balance("credits"), tt.last))
		})
	}
}
