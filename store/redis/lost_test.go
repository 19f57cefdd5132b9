package redis_test

import (
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// told is what callers were told, in millitokens. What is in doubt had no answer.
type told struct {
	mu                                           sync.Mutex
	admitted, maybeAdmitted, returned, maybeBack int64
}

func (b *told) add(to *int64, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to += n
}

// spend takes from a bucket, and gives back half of what was admitted: all of it or a part, as by a rollback or a commit
// of less. Half of the returns have an ID and are repeated until it is known that they are made.
func (b *told) spend(t testing.TB, s store.Store, calls int) {
	t.Helper()
	for range calls {
		n := 1 + rand.Int64N(5)
		ok, err := take(t, s, one("alice", lavish, n))
		switch {
		case err != nil:
			b.add(&b.maybeAdmitted, n*1000)
		case ok:
			b.add(&b.admitted, n*1000)
		}
		if err != nil || rand.IntN(2) == 0 {
			continue
		}
		back := 1 + rand.Int64N(n)
		st := store.Settle{Debits: []store.Debit{one("alice", lavish, -back)}}
		if rand.IntN(2) == 0 {
			st.ID, st.Expires = crand.Text(), time.Now().Add(time.Hour)
		}
		for range 20 {
			if _, err = s.Settle(t.Context(), st); err == nil || st.ID == "" || errors.Is(err, store.ErrSettled) {
				break
			}
		}
		if err == nil || errors.Is(err, store.ErrSettled) {
			b.add(&b.returned, back*1000)
		} else {
			b.add(&b.maybeBack, back*1000)
		}
	}
}

// lavish is a limit that refuses nothing in a test, and whose clock stands still.
var lavish = still(1e9)

// Whatever answers are lost, a debit is made at most once, and so is a return; with an ID, exactly once.
func TestAnswersLost(t *testing.T) {
	t.Parallel()
	s := start(t)
	front := relay(t, s.Addr)
	var stores []*redis.Store
	for range 3 {
		stores = append(stores, open(t, redis.Config{Address: "redis://" + front.addr, CallTimeout: 10 * time.Second}))
	}
	front.lose(0.05)
	var b told
	var wg sync.WaitGroup
	for _, st := range stores {
		for range 4 {
			wg.Go(func() { b.spend(t, st, 100) })
		}
	}
	wg.Wait()
	front.lose(0)
	var l store.LimitState
	eventually(t, "the connections are back", func() bool {
		snap, err := stores[0].Peek(t.Context(), one("alice", lavish, 1).Bucket)
		if err == nil {
			l = snap.States[0].Limits[0]
		}
		return err == nil
	})
	if b.maybeAdmitted == 0 || b.maybeBack == 0 {
		t.Error("no answer was lost")
	}
	if l.Debited < b.admitted || l.Debited > b.admitted+b.maybeAdmitted {
		t.Errorf("%d admitted, %d in doubt: counted as %d", b.admitted, b.maybeAdmitted, l.Debited)
	}
	if l.Returned < b.returned || l.Returned > b.returned+b.maybeBack {
		t.Errorf("%d returned, %d in doubt: counted as %d", b.returned, b.maybeBack, l.Returned)
	}
}

// A primary that fails takes with it what it had not replicated, debits and returns alike. Exactly that much is admitted
// again, and no more.
func TestFailoverLoses(t *testing.T) {
	t.Parallel()
	shards, ctx := redistest.Cluster(t, 1), t.Context()
	st := open(t, redis.Config{Address: "redis+cluster://" + redistest.Addresses(shards), CallTimeout: 10 * time.Second})
	limit := still(1000)
	allow := func(tokens int64, want bool) {
		t.Helper()
		if ok, err := take(t, st, one("alice", limit, tokens)); ok != want || err != nil {
			t.Fatalf("%d tokens: allowed %t, error %v", tokens, ok, err)
		}
	}
	command := func(s *redistest.Server, words ...string) string {
		t.Helper()
		out, err := s.Do(ctx, words...)
		if err != nil {
			t.Fatalf("%v: %v: %s", words, err, out)
		}
		return out
	}
	allow(300, true)
	at := slices.IndexFunc(shards, func(sh redistest.Shard) bool {
		out, err := sh[0].Do(ctx, "EXISTS", st.Index("n"))
		return err == nil && out == "1"
	})
	primary, replica := shards[at][0], shards[at][1]
	eventually(t, "the replica has what was spent", func() bool { return command(replica, "DBSIZE") == command(primary, "DBSIZE") })
	// From now on, the replica cannot log in to its primary.
	command(replica, "CONFIG", "SET", "masterauth", "wrong")
	command(primary, "CLIENT", "KILL", "TYPE", "replica")
	eventually(t, "the replica is cut off", func() bool {
		return strings.Contains(command(primary, "INFO", "replication"), "connected_slaves:0")
	})
	allow(200, true)
	if _, err := st.Settle(ctx, store.Settle{Debits: []store.Debit{one("alice", limit, -50)}}); err != nil {
		t.Fatal(err)
	}
	allow(551, false)
	primary.Kill()
	command(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
	eventually(t, "the next primary decides", func() bool {
		ok, err := take(t, st, one("alice", limit, 701))
		return err == nil && !ok
	})
	allow(700, true)
	allow(1, false)
}
