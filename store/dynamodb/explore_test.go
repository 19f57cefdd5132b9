package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest/interleave"
)

// play is a stage on which each script has its own process. The scripts yield before every write.
type play struct {
	*stage

	b     store.Bucket
	l     *store.Limit
	s     []*dynamodb.Store
	p     []*process
	books *books

	mu       sync.Mutex
	admitted []event // what callers were told, in order
	err      error
}

// tell takes, and records what it was told.
func (y *play) tell(i int, debits ...store.Debit) bool {
	out, err := y.s[i].Take(y.Context(), store.Take{Debits: debits})
	y.s[i].Flush() // makes the undos of what was refused
	y.mu.Lock()
	defer y.mu.Unlock()
	if err != nil {
		if !errors.Is(err, store.ErrStaleLimits) {
			y.err = errors.Join(y.err, err)
		}
		return false
	}
	if out.Allowed {
		l := debits[0].Charges[0].Limit
		reading := clock.Params{Amount: l.Amount, Period: int64(l.Period), Burst: l.Burst}.Clock(clock.Nanos(out.At))
		y.admitted = append(y.admitted, event{debited: debits[0].Charges[0].Amount, clock: reading})
	}
	return out.Allowed
}

func (y *play) sum() (n int64) {
	for _, e := range y.admitted {
		n += e.debited
	}
	return n
}

// close closes the stores, after which nothing is pending.
func (y *play) close() error {
	for i, s := range y.s {
		y.p[i].before, y.p[i].after = nil, nil
		y.err = errors.Join(y.err, s.Close())
	}
	return y.err
}

// explore runs scripts, each with its own process, through all interleavings of their writes. The limit's clock stands
// still unless a script advances it.
func explore(t *testing.T, change func(*dynamodb.Config), setup func(y *play), check func(y *play) error, scripts ...func(y *play, i int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fresh := func(yield func()) *play {
			y := &play{stage: newStage(t), b: bkt("a"), l: per("rpm", 60, time.Minute, 60)}
			for range scripts {
				s, p := y.join(func(c *dynamodb.Config) {
					if change != nil {
						change(c)
					}
				})
				s.Dice() // so that an interleaving can be repeated
				y.s, y.p = append(y.s, s), append(y.p, p)
			}
			y.books = y.keep(y.l)
			setup(y)
			for _, p := range y.p {
				p.turn = make(chan struct{}, 1)
				p.before = func(string, any) error { yield(); return nil }
			}
			return y
		}
		var parts []interleave.Script[*play]
		for i, script := range scripts {
			parts = append(parts, func(y *play, _ func()) {
				script(y, i)
				y.s[i].Flush()
			})
		}
		interleave.Explore(t, fresh, parts, func(y *play) error {
			if err := y.close(); err != nil {
				return err
			}
			if err := y.books.check(); err != nil {
				return err
			}
			return check(y)
		})
	})
}

// owes checks that what is outstanding is what was debited and not returned: exactly, or at least, if some may be lost.
func (y *play) owes(exactly bool) error {
	if owed, net := y.outstanding(y.b, y.l.Name), y.books.net(); owed < net || exactly && owed != net {
		return fmt.Errorf("%d outstanding of %d debited", owed, net)
	}
	return nil
}

// known returns a setup that debits the bucket and makes every process see it afterwards.
func known(tokens int64) func(*play) {
	return func(y *play) {
		y.take(y.s[0], of(y.b, y.l, tokens))
		for i := range y.s {
			y.take(y.s[i], of(y.b, y.l, 0))
		}
	}
}

func debits(tokens ...int64) func(*play, int) {
	return func(y *play, i int) {
		for _, n := range tokens {
			y.tell(i, of(y.b, y.l, n))
		}
	}
}

func splits(n int) func(*play, int) {
	return func(y *play, i int) {
		if _, err := y.s[i].Split(y.Context(), y.b, n); err != nil && !errors.Is(err, errKilled) {
			y.Error(err)
		}
	}
}

func within(y *play) error {
	if most := y.l.Burst; y.sum() > most {
		return fmt.Errorf("%d admitted of %d", y.sum(), most)
	}
	return nil
}

// TestExploreForms explores the two forms of a debit, with a guard, around the point at which a bucket is full.
func TestExploreForms(t *testing.T) {
	t.Parallel()
	unraced(t)
	setup := func(y *play) {
		known(1)(y)
		for range 20 {
			y.clock.Advance(time.Second)
			for i := range y.s {
				y.take(y.s[i], charge(y.b, y.l, 300))
			}
		}
		y.clock.Advance(500 * time.Millisecond)
	}
	for _, scripts := range [][]func(*play, int){
		{debits(30, 30), debits(20, 40)},
		{debits(1, 59), debits(60)},
		{debits(1, 30), func(y *play, i int) { y.clock.Advance(3 * time.Second); debits(59)(y, i) }},
	} {
		explore(t, func(c *dynamodb.Config) { c.Guard = 0.1 }, setup, func(*play) error { return nil }, scripts...)
	}
}

// TestExploreRebase explores a change of limits during debits under the old ones.
func TestExploreRebase(t *testing.T) {
	t.Parallel()
	unraced(t)
	for _, burst := range []int64{30, 90} {
		to := per("rpm", burst, time.Minute, burst)
		changed := func(y *play, i int) {
			for range 2 {
				d := of(y.b, to, 10)
				d.Epoch = 2
				y.tell(i, d)
			}
		}
		setup := func(y *play) { known(20)(y); y.admitted = []event{{debited: 20_000}} }
		explore(t, nil, setup, func(y *play) error {
			owed := int64(0)
			for _, l := range y.state(y.b).Limits {
				owed = max(0, l.Level-y.reading(l.Limit))
			}
			if sum := y.sum(); owed < sum || owed > y.books.net()+1 || sum > max(60_000, burst*1000) {
				return fmt.Errorf("%d outstanding of %d admitted, %d debited", owed, sum, y.books.net())
			}
			return nil
		}, debits(10, 10), changed)
	}
}

// TestExploreSplit explores a split during debits and returns.
func TestExploreSplit(t *testing.T) {
	t.Parallel()
	unraced(t)
	back := func(y *play, i int) { y.settle(y.s[i], of(y.b, y.l, -10)) }
	check := func(y *play) error { return y.owes(false) }
	explore(t, nil, known(20), check, splits(2), debits(10, 30))
	explore(t, nil, known(20), check, splits(2), back)
	explore(t, nil, known(50), func(y *play) error { return errors.Join(y.owes(false), within(y)) }, splits(2), debits(4, 5))
	explore(t, nil, known(0), func(y *play) error {
		if n := y.shards(y.b); n != 2 {
			return fmt.Errorf("%d shards", n)
		}
		return errors.Join(y.owes(false), within(y))
	}, splits(2), splits(2))
	if long(t) {
		explore(t, nil, known(20), check, splits(2), debits(10), back)
		explore(t, nil, known(0), func(y *play) error { return errors.Join(y.owes(false), within(y)) }, splits(2), splits(2), debits(2))
	}
}

// TestExploreSplitKilled explores a process that ends before or right after each step of a split, beside one that debits
// and goes on with the steps.
func TestExploreSplitKilled(t *testing.T) {
	t.Parallel()
	unraced(t)
	most := 1
	if long(t) {
		most = 2
	}
	for from := 1; from <= most; from++ {
		for step := 1; step <= 3*from; step++ {
			for _, applied := range []bool{false, true} {
				setup := func(y *play) {
					known(20)(y)
					y.split(y.s[0], y.b, from)
				}
				dies := func(y *play, i int) {
					var dead bool
					before, n := y.p[i].before, 0
					ctx, end := context.WithCancel(y.Context())
					defer end()
					y.p[i].before = func(op string, in any) error {
						if err := before(op, in); err != nil {
							return err
						}
						if n++; dead || n > step || n == step && !applied {
							dead = true
							end()
							return errKilled
						}
						return nil
					}
					y.p[i].after = func(string, any) error {
						if dead = dead || n == step; dead {
							end()
							return errKilled
						}
						return nil
					}
					_, _ = y.s[i].Split(ctx, y.b, 2*from)
				}
				explore(t, nil, setup, func(y *play) error {
					s, _ := y.join()
					for range 60 {
						y.take(s, of(y.b, y.l, 1))
					}
					y.must(s.Close())
					// Between 20 and 60 are spent: a millitoken of each new half may be missing.
					if net := y.books.net(); net > 60_000 || net < 60_000-4000 {
						return fmt.Errorf("%d debited in the end", net)
					}
					return y.owes(false)
				}, dies, debits(10, 5))
			}
		}
	}
}

// TestExploreForget checks that what is debited while the bucket is forgotten is forgotten, too, or is debited from the
// next one.
func TestExploreForget(t *testing.T) {
	t.Parallel()
	unraced(t)
	forget := func(y *play, i int) { y.must(y.s[i].Forget(y.Context(), y.b)) }
	for _, n := range []int{1, 2} {
		setup := func(y *play) {
			known(20)(y)
			y.split(y.s[0], y.b, n)
			known(0)(y)
			y.limitless()
		}
		explore(t, nil, setup, func(y *play) error {
			owed := y.outstanding(y.b, y.l.Name)
			if sum := y.sum(); owed > sum || n == 1 && owed%10_000 != 0 {
				return fmt.Errorf("%d outstanding of %d debited meanwhile", owed, sum)
			}
			clear(y.books.events)
			y.books.limit = y.l
			s, _ := y.join()
			for range 60 {
				y.take(s, of(y.b, y.l, 1))
			}
			if got := y.books.net(); got > 60_000-owed || got <= 59_000-owed { // a part of a token may be left
				return fmt.Errorf("%d admitted of the %d that are left", got, 60_000-owed)
			}
			return errors.Join(y.books.check(), s.Close())
		}, forget, debits(10, 20))
	}
}

// limitless turns off the check of the books: a bucket that was forgotten starts again.
func (y *play) limitless() {
	y.books = y.keep(y.l)
	y.books.limit = raw(y.l.Name, y.l.Amount, 1e12)
}

// TestExploreAnswerLost checks that a write that returns tokens is not made twice, whatever happens to its answer.
func TestExploreAnswerLost(t *testing.T) {
	t.Parallel()
	unraced(t)
	both := func(y *play, i int) {
		y.p[i].after = func(string, any) error { y.p[i].after = nil; return &types.InternalServerError{} }
		d := of(y.b, y.l, 3)
		d.Charges = append(d.Charges, store.Charge{Limit: y.l, Amount: -2000})
		_, _ = y.s[i].Settle(y.Context(), store.Settle{Debits: []store.Debit{d}})
	}
	// The answer to the undo of a chain's first bucket, whose second bucket refused, is lost.
	undone := func(y *play, i int) {
		y.p[i].after = func(_ string, in any) error {
			if isUndo(in) {
				return &types.InternalServerError{}
			}
			return nil
		}
		y.tell(i, of(y.b, y.l, 5), of(bkt("full"), y.l, 60))
		y.tell(i, of(y.b, y.l, 6))
	}
	setup := func(y *play) {
		known(20)(y)
		y.take(y.s[0], of(bkt("full"), y.l, 1))
	}
	returned := func(most int64) func(y *play) error {
		return func(y *play) error {
			var sum int64
			for _, e := range y.books.events["n/BUCKET#a#api"] {
				sum += e.returned
			}
			if sum > most {
				return fmt.Errorf("%d returned, at most %d", sum, most)
			}
			return nil
		}
	}
	explore(t, nil, setup, returned(2000), both, debits(10, 30))
	explore(t, nil, setup, returned(5000), undone, debits(10, 30))
}

// TestExplorePrefetch explores two processes that debit ahead and hand out their surpluses as time goes on.
func TestExplorePrefetch(t *testing.T) {
	t.Parallel()
	unraced(t)
	hits := 0
	setup := func(y *play) {
		y.l = per("rpm", 20, time.Second, 60)
		y.books = y.keep(y.l)
		for range 3 {
			y.clock.Advance(time.Second)
			for i := range 2 {
				y.tell(i, of(y.b, y.l, 5))
			}
		}
	}
	keeps := func(y *play, i int) {
		y.clock.Advance(100 * time.Millisecond)
		if before := y.writes(); y.tell(i, of(y.b, y.l, 2)) && y.writes() == before {
			hits++
		}
		y.clock.Advance(750 * time.Millisecond) // the clock has passed what is left
		y.tell(i, of(y.b, y.l, 3))
	}
	bursts := func(y *play, i int) {
		y.clock.Advance(100 * time.Millisecond)
		y.tell(i, of(y.b, y.l, 60))
	}
	ahead := func(c *dynamodb.Config) { c.Prefetch = dynamodb.Prefetch{Share: 1, For: time.Second} }
	explore(t, ahead, setup, func(y *play) error {
		told := &books{limit: y.l, events: map[string][]event{"told": y.admitted}}
		return told.check()
	}, bursts, keeps) // the second has a surplus
	if hits == 0 {
		t.Error("nothing was debited ahead")
	}
}
