package dynamodb_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestKilled ends a process before and after each of its writes in turn, and checks that the worst effect on the buckets
// is lost tokens.
func TestKilled(t *testing.T) {
	t.Parallel()
	unraced(t)
	child, parent, grand := bkt("child"), bkt("parent"), bkt("grand")
	l := per("rpm", 60, time.Minute, 60)
	chain := func(n int64) store.Take {
		return store.Take{Debits: []store.Debit{of(child, l, n), of(parent, l, n), of(grand, l, n)}}
	}
	id := 0
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, s *dynamodb.Store) (int64, error) // returns how much was admitted of each bucket
	}{
		{"a cascade", func(t *testing.T, s *dynamodb.Store) (int64, error) {
			out, err := s.Take(t.Context(), chain(10))
			if out.Allowed {
				return 10, err
			}
			return 0, err
		}},
		{"a cascade refused", func(t *testing.T, s *dynamodb.Store) (int64, error) {
			_, err := s.Take(t.Context(), store.Take{Debits: []store.Debit{of(child, l, 10), of(parent, l, 10), of(grand, l, 50)}})
			s.Flush() // the rollback
			return 0, err
		}},
		{"a split", func(t *testing.T, s *dynamodb.Store) (int64, error) {
			_, err := s.Split(t.Context(), child, 4)
			return 0, err
		}},
		{"a settle with an ID", func(t *testing.T, s *dynamodb.Store) (int64, error) {
			id++
			d := of(child, l, -10)
			_, err := s.Settle(t.Context(), store.Settle{
				Debits: []store.Debit{d, of(parent, l, -10), of(grand, l, -10)}, ID: fmt.Sprint(id), Expires: noon.Add(time.Hour),
			})
			return 0, err
		}},
		{"a commit", func(t *testing.T, s *dynamodb.Store) (int64, error) {
			return 0, s.Commit(t.Context(), put(entity("a"), 0, "x"), put(entity("b"), 0, "y"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			killed := 0
			for n, more := 1, true; more; n++ {
				for _, applied := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						st := newStage(t)
						s, p := st.join()
						for range 2 {
							if out, err := s.Take(t.Context(), chain(10)); err != nil || !out.Allowed {
								t.Fatal(out, err)
							}
						}
						reached := false
						p.kill(n, applied, &reached)
						admitted, err := tt.do(t, s)
						if more = reached; reached {
							killed++
						}
						if err != nil && !errors.Is(err, errKilled) {
							t.Errorf("error %v", err)
						}
						p.before, p.after = func(string, any) error { return errKilled }, nil
						st.must(s.Close())
						st.survived(tt.name, 20+admitted, l, child, parent, grand)
					})
				}
			}
			if killed == 0 {
				t.Error("nobody was killed")
			}
		})
	}
}

// survived checks what a new process finds: no more than what is left after the admitted amount; nothing returned, except
// by a settle; and everything, later.
func (st *stage) survived(what string, admitted int64, l *store.Limit, buckets ...store.Bucket) {
	st.Helper()
	s, _ := st.join()
	if what == "a commit" {
		got, err := s.Get(st.Context(), entity("a"), entity("b"))
		st.must(err)
		if v := got.Records[0].Version + got.Records[1].Version; v != 2*got.Epoch {
			st.Errorf("half a commit: %+v", got)
		}
	}
	most := 60 - admitted
	if what == "a settle with an ID" {
		most += 10
	}
	for _, round := range []string{"at once", "later"} {
		for _, b := range buckets {
			n := int64(0)
			for range 70 {
				if st.take(s, of(b, l, 1)).Allowed {
					n++
				}
			}
			if n > most || round == "later" && n != 60 {
				st.Errorf("%s %d of %v admitted, at most %d", round, n, b, most)
			}
		}
		st.clock.Advance(2 * time.Second) // the time allowed for a child that was not put
		for _, b := range buckets {
			for range 10 {
				st.take(s, of(b, l, 1))
			}
		}
		most = 60
		st.clock.Advance(time.Hour)
	}
	st.must(s.Close())
}

// TestSIGKILL kills a process in the middle of its work, while others continue.
func TestSIGKILL(t *testing.T) {
	t.Parallel()
	endpoint, table := dynamotest.Engine(t), dynamotest.Table(t)
	client := dynamotest.Client(t, endpoint)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, CallTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	st := &stage{TB: t}
	l, parent := per("tpm", 300, time.Second, 300), bkt("parent")
	workers := hire(t, 2)
	o := order{
		Endpoint: endpoint, Table: table, Parent: parent, Versions: []*store.Limit{l}, Prefetch: true, Patient: true,
		Children: []store.Bucket{bkt("a"), bkt("b")}, Child: l, Start: time.Now().Add(100 * time.Millisecond),
	}
	o.End = o.Start.Add(1500 * time.Millisecond)
	for _, w := range workers {
		st.must(w.in.Encode(o))
	}
	time.Sleep(time.Until(o.Start.Add(500 * time.Millisecond))) // real time: another process is at work
	st.must(workers[0].cmd.Process.Kill())
	var told report
	st.must(workers[1].out.Decode(&told))
	if told.Errors > 0 || told.Admitted == 0 {
		t.Errorf("who goes on: %+v", told)
	}
	snap, err := s.Peek(t.Context(), parent, bkt("a"), bkt("b"))
	st.must(err)
	for _, state := range snap.States {
		p, lim := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}, state.Limits[0]
		most := p.Burst + p.Clock(clock.Nanos(state.At)) - p.Clock(clock.Nanos(o.Start))
		if net := lim.Debited - lim.Returned; net > most {
			t.Errorf("%v: %d debited and not returned, at most %d", state.Bucket, net, most)
		}
	}
	time.Sleep(1100 * time.Millisecond) // real time: until the buckets are full again
	st.want(s, true, of(parent, l, 300), of(bkt("a"), l, 300), of(bkt("b"), l, 300))
}
