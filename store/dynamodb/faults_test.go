package dynamodb_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// saga is a random sequence of actions by several processes on one bucket. Before some of a process's writes, another
// process acts.
type saga struct {
	*stage

	r        *rand.Rand
	b        store.Bucket
	l        *store.Limit
	s        []*dynamodb.Store
	p        []*process
	books    *books
	admitted int64
	given    int64 // returned by callers
	held     []int64
	nested   bool
	told     []string
}

// act makes a process do something.
func (g *saga) act(i int) {
	r, s := g.r, g.s[i]
	amount := r.Int64N(g.l.Burst/4 + 2)
	if r.IntN(3) == 0 {
		amount = r.Int64N(g.l.Burst + 2)
	}
	what := []string{"take", "take", "take", "take", "chain", "return", "split", "flush"}[r.IntN(8)]
	g.told = append(g.told, fmt.Sprint(i, " ", what, " ", amount))
	switch what {
	case "take", "chain":
		debits := []store.Debit{charge(g.b, g.l, amount)}
		if what == "chain" { // which is often refused
			debits = append(debits, charge(bkt("other"), raw("tps", 1, 1000), 500))
		}
		out, err := s.Take(g.Context(), store.Take{Debits: debits})
		s.Flush() // so that the order of the writes depends on the seed alone
		if err == nil && out.Allowed {
			g.admitted += amount
			g.held = append(g.held, amount)
		}
		g.known(err)
	case "return":
		if len(g.held) == 0 {
			return
		}
		back := r.Int64N(g.held[0] + 1)
		g.held = g.held[1:]
		g.given += back
		_, err := s.Settle(g.Context(), store.Settle{Debits: []store.Debit{charge(g.b, g.l, -back)}})
		g.known(err)
	case "split":
		_, err := s.Split(g.Context(), g.b, 2<<r.IntN(4))
		g.known(err)
	case "flush":
		s.Flush()
	}
}

func (g *saga) known(err error) {
	if err != nil && !errors.Is(err, errKilled) && !strings.Contains(err.Error(), "InternalServerError") {
		g.Errorf("error %v", err)
	}
}

// meanwhile does what may happen before a write.
func (g *saga) meanwhile(i int, faults bool) {
	p := g.p[i]
	p.turn = make(chan struct{}, 1)
	p.before = func(string, any) error {
		if g.nested || g.r.IntN(4) > 0 {
			return nil
		}
		g.nested = true
		defer func() { g.nested = false }()
		g.act((i + 1) % len(g.s))
		return nil
	}
	if !faults {
		return
	}
	p.after = func(string, any) error {
		if g.r.IntN(10) == 0 {
			return &types.InternalServerError{}
		}
		return nil
	}
}

// TestHistories checks I1 over random histories of three processes on a bucket that is split at random.
func TestHistories(t *testing.T) {
	t.Parallel()
	for _, faults := range []bool{false, true} {
		for _, guard := range []float64{-1, 0.1} {
			t.Run(fmt.Sprint("faults ", faults, " guard ", guard), func(t *testing.T) {
				t.Parallel()
				most := 150
				if brief(t) {
					most = 20
				}
				for range most {
					seed := rand.Uint64()
					synctest.Test(t, func(t *testing.T) {
						if err := history(t, seed, faults, guard); err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
					})
				}
			})
		}
	}
}

func history(t *testing.T, seed uint64, faults bool, guard float64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	g := &saga{stage: newStage(t), r: r, b: bkt("a")}
	g.l = raw("rpm", 1+r.Int64N(1_000_000), 1+r.Int64N([]int64{50, 100_000}[r.IntN(2)]))
	for range 3 {
		s, p := g.join(func(c *dynamodb.Config) { c.Guard = guard })
		s.Dice()
		g.s, g.p = append(g.s, s), append(g.p, p)
	}
	g.books = g.keep(g.l)
	for i := range g.p {
		g.meanwhile(i, faults)
	}
	for range 1 + r.IntN(40) {
		g.act(r.IntN(3))
		if r.IntN(2) == 0 {
			g.clock.Advance(time.Duration(r.Int64N([]int64{1e6, 1e9, 60e9}[r.IntN(3)])))
		}
		if err := g.books.check(); err != nil {
			return fmt.Errorf("%w\n%s", err, strings.Join(g.told, "\n"))
		}
	}
	for i, s := range g.s {
		g.p[i].before, g.p[i].after = nil, nil
		s.Flush()
	}
	if net := g.books.of(g.b); g.admitted-g.given > net {
		return fmt.Errorf("%d admitted and %d given back, but only %d debited and not returned\n%s", g.admitted, g.given, net, strings.Join(g.told, "\n"))
	}
	for _, s := range g.s {
		g.must(s.Close())
	}
	return nil
}

// TestFaultIsNoAnswer checks that a write that failed and was repeated is not an error for the callers it served.
func TestFaultIsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, fault := range []error{&types.ThrottlingException{}, &types.InternalServerError{}, &types.TransactionConflictException{}} {
			st := newStage(t)
			b, l := bkt("a"), per("rpm", 60, time.Minute, 60)
			s, p := st.join()
			n := 0
			p.before = func(string, any) error {
				if n++; n%2 == 1 {
					return fault
				}
				return nil
			}
			st.want(s, true, of(b, l, 10))
			st.settle(s, of(b, l, 10))
			st.want(s, false, of(b, l, 41))
			if owed := st.outstanding(b, "rpm"); owed != 20_000 {
				t.Errorf("after %v: %d outstanding", fault, owed)
			}
			st.must(s.Close())
		}
	})
}
