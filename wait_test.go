package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// line starts waiters one after the other, and records the order and time in which they are served.
type line struct {
	*bundle

	mu     sync.Mutex
	wg     sync.WaitGroup
	served []string
	began  time.Time
	leases map[string]*weir.Lease
}

func newLine(b *bundle) *line {
	return &line{bundle: b, began: time.Now(), leases: map[string]*weir.Lease{}}
}

// wait starts a waiter on "api", and returns once it waits or is served.
func (l *line) wait(ctx context.Context, name, entity string, tokens weir.Tokens) {
	l.waitFor(ctx, name, weir.Request{Entity: entity, Resource: "api", Tokens: tokens})
}

func (l *line) waitFor(ctx context.Context, name string, req weir.Request) {
	l.wg.Go(func() {
		lease, err := l.Wait(ctx, req)
		l.mu.Lock()
		defer l.mu.Unlock()
		what := fmt.Sprint(name, " ", time.Since(l.began))
		switch {
		case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, weir.ErrExceeded):
			if what += " too late"; !strings.Contains(err.Error(), "the deadline cannot be met: limit exceeded: ") {
				l.t.Error(err)
			}
		case err != nil:
			what += " " + err.Error()
		}
		l.served = append(l.served, what)
		l.leases[name] = lease
	})
	synctest.Wait()
}

func (l *line) want(want ...string) {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.served, want) {
		l.t.Errorf("served\n\t%q, want\n\t%q", l.served, want)
	}
}

var one, two, three = weir.Tokens{"rpm": 1}, weir.Tokens{"rpm": 2}, weir.Tokens{"rpm": 3}

// Those whom an entity's total refuses wait in one queue, on whatever resource, and go on when tokens of it come back.
func TestWaitForTotal(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 60))
		b.set("alice", weir.TotalResource, weir.PerDay("rpm", 2))
		lease, err := b.Acquire(b.ctx, weir.Request{Entity: "alice", Resource: "other", Tokens: two})
		must(t, err)
		l := newLine(b)
		l.wait(b.ctx, "both", "alice", two)
		l.waitFor(b.ctx, "one", weir.Request{Entity: "alice", Resource: "third", Tokens: one})
		time.Sleep(time.Second)
		_, err = lease.Adjust(b.ctx, weir.Tokens{"rpm": -1})
		must(t, err)
		l.want()
		time.Sleep(time.Second)
		must(t, lease.Rollback(b.ctx))
		l.want("both 2s")
		must(t, l.leases["both"].Rollback(b.ctx))
		l.want("both 2s", "one 2s")
		l.wg.Wait()
	})
}

func TestWaitIsFair(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 6))
		l := newLine(b)
		l.wait(b.ctx, "all", "alice", weir.Tokens{"rpm": 6})
		l.wait(b.ctx, "a", "alice", one)
		l.wait(b.ctx, "b", "alice", three)
		l.wait(b.ctx, "c", "alice", one)
		l.wait(b.ctx, "bob", "bob", one) // other entities are not held up
		l.wg.Wait()
		l.want("all 0s", "bob 0s", "a 10s", "b 40s", "c 50s")
	})
}

// Later small requests do not starve a large one.
func TestWaitLargeIsNotStarved(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 6))
		b.take("alice", weir.Tokens{"rpm": 5})
		l := newLine(b)
		l.wait(b.ctx, "large", "alice", weir.Tokens{"rpm": 6})
		for i := range 10 {
			l.wait(b.ctx, fmt.Sprint("small", i), "alice", one)
			time.Sleep(time.Second)
		}
		l.wg.Wait()
		if first := l.served[0]; first != "large 50s" || len(l.served) != 11 {
			t.Errorf("served %q", l.served)
		}
	})
}

// Waiters of several entities queue at the parent that refuses them. A waiter that its own limit refuses blocks no others.
func TestWaitAtTheParent(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.chain("a", "parent")
		b.child("b", "parent")
		b.child("c", "parent")
		b.set("", "", weir.PerMinute("rpm", 60))
		b.set("parent", "", weir.PerMinute("rpm", 6))
		b.set("c", "", weir.PerHour("rpm", 1))
		l := newLine(b)
		l.wait(b.ctx, "c0", "c", one)
		l.wait(b.ctx, "c1", "c", one) // its own limit refuses, for an hour
		l.wait(b.ctx, "a0", "a", weir.Tokens{"rpm": 5})
		l.wait(b.ctx, "a1", "a", two)
		l.wait(b.ctx, "b1", "b", one)
		l.wait(b.ctx, "a2", "a", one)
		l.wait(b.ctx, "p", "parent", one)
		l.wg.Wait()
		l.want("c0 0s", "a0 0s", "a1 20s", "b1 30s", "a2 40s", "p 50s", "c1 1h0m0s")
	})
}

// A waiter refused by two levels queues at the level with the longest wait, and so keeps its turn there.
func TestWaitAtTheLongest(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.child("parent", "")
		b.child("a", "parent")
		b.child("b", "parent")
		b.set("", "", weir.PerMinute("rpm", 60).WithBurst(1))
		b.set("parent", "", weir.PerMinute("rpm", 6).WithBurst(1))
		l := newLine(b)
		l.wait(b.ctx, "first", "a", one)
		var want []string
		for i := range 10 {
			time.Sleep(20*time.Second - time.Since(l.began)%(20*time.Second))
			l.wait(b.ctx, fmt.Sprint("drain", i), "a", one) // then a waits for 1 s, the parent for 10
			l.wait(b.ctx, fmt.Sprint("a", i), "a", one)
			l.wait(b.ctx, fmt.Sprint("b", i), "b", one)
			want = append(want, fmt.Sprint("a", i), fmt.Sprint("b", i))
			l.wg.Wait()
		}
		var got []string
		for _, s := range l.served {
			if name, _, _ := strings.Cut(s, " "); name != "first" && !strings.HasPrefix(name, "drain") {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("served %q", got)
		}
	})
}

// Requests with different limits of their own have separate states and separate queues.
func TestWaitWithOverrides(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 1))
		l := newLine(b)
		with := func(limit weir.Limit) weir.Request {
			return weir.Request{Entity: "alice", Resource: "api", Tokens: one, Limits: []weir.Limit{limit}}
		}
		ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
		defer cancel()
		for _, n := range []string{"1", "2"} {
			l.waitFor(b.ctx, "day"+n, with(weir.PerDay("rpm", 1)))
			l.wait(b.ctx, "own"+n, "alice", one)
			l.waitFor(ctx, "min"+n, with(weir.PerMinute("rpm", 1)))
		}
		l.wg.Wait()
		l.want("day1 0s", "own1 0s", "min1 0s", "min2 1m0s", "own2 1h0m0s", "day2 24h0m0s")
	})
}

func TestWaitDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 6))
		b.take("alice", weir.Tokens{"rpm": 6})
		l := newLine(b)
		in := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(b.ctx, d)
			t.Cleanup(cancel)
			return ctx
		}
		l.wait(in(10*time.Second-1), "alone", "alice", one)
		l.want("alone 0s too late")
		l.wait(in(11*time.Second), "a", "alice", one)
		l.wait(in(30*time.Second-1), "behind", "alice", two) // follows from the waiter before it
		l.want("alone 0s too late", "behind 0s too late")
		l.wait(in(31*time.Second), "b", "alice", two)
		l.wg.Wait()
		l.want("alone 0s too late", "behind 0s too late", "a 10s", "b 30s")

		_, err := b.Wait(in(time.Second), weir.Request{Entity: "alice", Resource: "api", Tokens: two})
		if over, ok := errors.AsType[*weir.ExceededError](err); !ok || over.RetryAfter != 20*time.Second || !over.Statuses[0].Refused || over.Statuses[0].Requested != 2 {
			t.Errorf("got %+v", err)
		}
		wantErr(t, err, weir.ErrExceeded)
		wantErr(t, err, context.DeadlineExceeded)
		if errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%v counts as unavailable", err)
		}
	})
}

// A waiter that gives up leaves no trace, and the next one gets its turn.
func TestWaitCancel(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 6))
		ended, end := context.WithCancel(b.ctx)
		end()
		_, err := b.Wait(ended, weir.Request{Entity: "alice", Resource: "api", Tokens: one})
		wantErr(t, err, context.Canceled)
		b.wantLeft("alice", weir.Tokens{"rpm": 6})

		b.take("alice", weir.Tokens{"rpm": 6})
		l := newLine(b)
		first, cancelFirst := context.WithCancel(b.ctx)
		second, cancelSecond := context.WithCancel(b.ctx)
		l.wait(first, "first", "alice", weir.Tokens{"rpm": 5})
		l.wait(second, "second", "alice", weir.Tokens{"rpm": 5})
		l.wait(b.ctx, "third", "alice", one)
		time.Sleep(time.Second)
		cancelSecond() // while it waits for its turn
		l.want("second 1s wait: context canceled")
		time.Sleep(time.Second)
		cancelFirst() // while it waits for tokens
		l.want("second 1s wait: context canceled", "first 2s wait: context canceled")
		l.wg.Wait()
		l.want("second 1s wait: context canceled", "first 2s wait: context canceled", "third 10s")
		l.wait(b.ctx, "last", "alice", one) // no waiter is ahead any more
		l.wg.Wait()
		if got := l.served[3]; got != "last 20s" {
			t.Error(got)
		}
	})
}

// A request that can never pass fails without waiting its turn.
func TestWaitBadRequest(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerMinute("rpm", 6))
		b.take("alice", weir.Tokens{"rpm": 6})
		l := newLine(b)
		l.wait(b.ctx, "a", "alice", one)
		began := time.Now()
		_, err := b.Wait(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": 7}})
		wantErr(t, err, weir.ErrExceedsBurst)
		_, err = b.Wait(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"rpm": -1}})
		wantConfigError(t, err, "tokens.rpm")
		_, err = b.Wait(b.ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"tpm": 1}})
		wantConfigError(t, err, "tokens.tpm")
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
		l.wg.Wait()
	})
}

// Returned tokens and raised limits serve waiters at once.
func TestWaitIsWoken(t *testing.T) {
	t.Parallel()
	tests := map[string]func(b *bundle, spent *weir.Lease) error{
		"rollback": func(b *bundle, spent *weir.Lease) error { return spent.Rollback(b.ctx) },
		"adjust":   func(b *bundle, spent *weir.Lease) error { return errOf(spent.Adjust(b.ctx, weir.Tokens{"rpm": -5})) },
		"resumed": func(b *bundle, spent *weir.Lease) error {
			return b.resume(spent.Token("x", time.Now().Add(time.Hour))).Rollback(b.ctx)
		},
		"own limit raised": func(b *bundle, _ *weir.Lease) error {
			return b.admin.Limits.Set(b.ctx, admin.Scope{Entity: "alice"}, weir.PerHour("rpm", 30))
		},
		"system's limit raised": func(b *bundle, _ *weir.Lease) error {
			return b.admin.Limits.Set(b.ctx, admin.Scope{}, weir.PerHour("rpm", 30))
		},
	}
	for name, wake := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(b *bundle) {
				b.set("", "", weir.PerHour("rpm", 6))
				spent := b.take("alice", weir.Tokens{"rpm": 6})
				l := newLine(b)
				l.wait(b.ctx, "a", "alice", two)
				l.wait(b.ctx, "b", "alice", three)
				time.Sleep(time.Second)
				must(t, wake(b, spent))
				l.wg.Wait()
				l.want("a 1s", "b 1s")
			})
		})
	}
}

// Changes made elsewhere are noticed within the TTL.
func TestWaitNoticesOthers(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 6))
		spent := b.take("alice", weir.Tokens{"rpm": 6})
		l := newLine(b)
		l.wait(b.ctx, "a", "alice", one)
		l.wait(b.ctx, "b", "alice", three)
		time.Sleep(time.Second)
		must(t, b.peer().resume(spent.Token("x", time.Now().Add(time.Hour))).Rollback(b.ctx))
		l.wg.Wait()
		l.want("a 10s", "b 10s")
	}, func(c *weir.Config) { c.CacheTTL = 10 * time.Second })
}

func TestWaitEndsWithTheLimiter(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "", weir.PerHour("rpm", 6))
		b.take("alice", weir.Tokens{"rpm": 6})
		l := newLine(b)
		l.wait(b.ctx, "a", "alice", one)
		l.wait(b.ctx, "b", "alice", one)
		must(t, b.Close())
		l.wg.Wait()
		l.want("a 0s store closed", "b 0s store closed")
	})
}

// A storm of waiters on one parent, some of which give up: every waiter is served or gone, and no turn is lost.
func TestWaitStorm(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.child("parent", "")
		for i := range 5 {
			b.child(fmt.Sprint("c", i), "parent")
		}
		b.set("", "", weir.PerMinute("rpm", 180).WithBurst(7)) // for each child: in the long run more than the parent's
		b.set("parent", "", weir.PerMinute("rpm", 120).WithBurst(10))
		b.take("parent", weir.Tokens{"rpm": 10})
		var wg sync.WaitGroup
		var mu sync.Mutex
		admitted, began := int64(0), time.Now()
		for i := range 300 {
			wg.Go(func() {
				ctx := b.ctx
				if i%3 == 0 {
					c, cancel := context.WithCancel(ctx)
					time.AfterFunc(time.Duration(i)*time.Millisecond*77, cancel)
					ctx = c
				}
				n := 1 + int64(i%7)
				lease, err := b.Wait(ctx, weir.Request{Entity: fmt.Sprint("c", i%5), Resource: "api", Tokens: weir.Tokens{"rpm": n}})
				switch {
				case errors.Is(err, context.Canceled):
				case err != nil:
					t.Error(err)
				case i%5 == 1:
					must(t, lease.Rollback(b.ctx))
				default:
					mu.Lock()
					defer mu.Unlock()
					admitted += n
				}
			})
		}
		wg.Wait()
		// 2 a second for the parent: each waiter was served as early as possible, and no earlier
		took := time.Since(began)
		if allowed := 2 * took.Seconds(); float64(admitted) > allowed || float64(admitted) < allowed-10 {
			t.Errorf("admitted %d in %v", admitted, took)
		}
	})
}

// A balance holds up nobody while it has the credits, and refuses at once, with no time after which to retry, if it has
// not: those that wait ahead need theirs.
func TestWaitBesideABalance(t *testing.T) {
	t.Parallel()
	bubble(t, func(b *bundle) {
		b.set("", "api", weir.PerMinute("rpm", 6).WithBurst(1), weir.Limit{Name: "credits", Balance: true})
		_, _, err := b.admin.Balances.Add(b.ctx, admin.Credit{
			BalanceKey: admin.BalanceKey{Entity: "alice", Resource: "api", Limit: "credits"}, Amount: 3, ID: "first",
		})
		must(t, err)
		l := newLine(b)
		ctx, cancel := context.WithTimeout(b.ctx, time.Hour)
		defer cancel()
		for _, name := range []string{"a", "b", "c", "d"} {
			l.wait(ctx, name, "alice", weir.Tokens{"rpm": 1, "credits": 1})
		}
		l.wg.Wait()
		l.want("a 0s", "d 0s too late", "b 10s", "c 20s")

		_, err = b.Wait(ctx, weir.Request{Entity: "alice", Resource: "api", Tokens: weir.Tokens{"credits": 1}})
		if over, ok := errors.AsType[*weir.ExceededError](err); !ok || over.RetryAfter != math.MaxInt64 {
			t.Errorf("error %v", err)
		}
	})
}
