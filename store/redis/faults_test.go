package redis_test

import (
	"context"
	"errors"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// still is a limit whose clock stands still during a test.
func still(tokens int64) *store.Limit {
	return &store.Limit{Name: "rpm", Amount: 1, Period: 366 * 24 * time.Hour, Burst: tokens * 1000}
}

func one(entity string, l *store.Limit, tokens int64) store.Debit {
	return store.Debit{Bucket: store.Bucket{Namespace: "n", Entity: entity, Resource: "api"}, Charges: []store.Charge{{Limit: l, Amount: tokens * 1000}}}
}

func take(t testing.TB, s store.Store, debits ...store.Debit) (bool, error) {
	t.Helper()
	out, err := s.Take(t.Context(), store.Take{Debits: debits})
	return out.Allowed, err
}

// wantError checks that a call failed the way a store must fail: with a *store.Error, a hint, and in time.
func wantError(t testing.TB, began time.Time, err error, hint string) {
	t.Helper()
	if known, ok := errors.AsType[*store.Error](err); !ok || !strings.Contains(known.Hint, hint) {
		t.Fatalf("error %v, want a *store.Error that says %q", err, hint)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Fatalf("answered after %v", took)
	}
}

func TestServerKilled(t *testing.T) {
	t.Parallel()
	s := start(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr, CallTimeout: 2 * time.Second})
	if ok, err := take(t, st, one("alice", still(10), 1)); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
	s.Kill()
	eventually(t, "the error says that nothing listens", func() bool { // each connection is found to be closed once
		began := time.Now()
		_, err := take(t, st, one("alice", still(10), 1))
		wantError(t, began, err, "")
		return strings.Contains(err.Error(), "nothing listens there")
	})
	// The server comes back, empty. The driver reconnects on its own.
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a take is allowed again", func() bool {
		ok, err := take(t, st, one("alice", still(10), 10))
		return ok && err == nil
	})
}

// A call that ends while a connection is made for it ends alone: others that wait for the same connection go on.
func TestCallEndsAlone(t *testing.T) {
	t.Parallel()
	s := start(t)
	front := relay(t, s.Addr)
	st := open(t, redis.Config{Address: "redis://" + front.addr, Connections: 1, CallTimeout: 10 * time.Second})
	bucket := one("alice", still(10), 1).Bucket
	if _, err := st.Peek(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	front.mu.Lock() // holds up new connections
	before := front.accepted.Load()
	s.do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil { // until the lost connection is noticed, which one call may have to do
			_, _ = st.Peek(ctx, bucket)
		}
	}()
	eventually(t, "a connection is made", func() bool { return front.accepted.Load() > before })
	begun, errs := make(chan struct{}), make(chan error)
	for range 8 {
		go func() {
			begun <- struct{}{}
			_, err := st.Peek(t.Context(), bucket)
			errs <- err
		}()
	}
	for range 8 {
		<-begun
	}
	cancel()
	front.mu.Unlock()
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Each call to a server that does not answer takes the call timeout and no longer.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	if stopped == cont {
		t.Skip("processes cannot be stopped here")
	}
	s := start(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr, CallTimeout: time.Second})
	patient := open(t, redis.Config{Address: "redis://" + s.Addr, CallTimeout: 24 * time.Hour}) // longer than any test
	for _, st := range []*redis.Store{st, patient} {
		eventually(t, "there is a connection", func() bool { _, err := take(t, st, one("alice", still(10), 1)); return err == nil })
	}
	if err := s.Signal(stopped); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		_, err := take(t, st, one("alice", still(10), 1))
		wantError(t, began, err, "no answer in time")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := patient.Peek(ctx); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
		t.Fatalf("error %v, want the context's", err)
	}
	if _, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + s.Addr, CallTimeout: 200 * time.Millisecond}); err == nil {
		t.Fatal("a server that does not answer was opened")
	}
	if err := s.Signal(cont); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers again", func() bool { _, err := st.Peek(t.Context()); return err == nil })
}

// A primary that becomes a replica refuses everything, even reads. The driver then reconnects, and only to a primary.
func TestFailover(t *testing.T) {
	t.Parallel()
	old, next := start(t), start(t)
	// The name stays and the address behind it changes, like the name of a managed primary in the cloud.
	front := relay(t, old.Addr)
	st := open(t, redis.Config{Address: "redis://" + front.addr, CallTimeout: time.Second})
	if ok, err := take(t, st, one("alice", still(10), 7)); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
	host, port, _ := net.SplitHostPort(old.Addr)
	next.do(t, "REPLICAOF", host, port)
	eventually(t, "the replica has what was spent", func() bool { return next.do(t, "DBSIZE") == old.do(t, "DBSIZE") && old.do(t, "DBSIZE") != "0" })
	if _, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + next.Addr}); err == nil || !strings.Contains(err.Error(), "not a primary") {
		t.Fatalf("a replica was opened: %v", err)
	}
	next.do(t, "REPLICAOF", "NO", "ONE")
	host, port, _ = net.SplitHostPort(next.Addr)
	old.do(t, "REPLICAOF", host, port)
	bucket, system := one("alice", still(10), 1).Bucket, store.Key{Namespace: "n", Kind: store.KindSystem}
	for _, c := range []struct {
		name string
		call func() error
	}{ // reads come first: once one call is refused, all reconnect
		{"a look", func() error { _, err := st.Peek(t.Context(), bucket); return err }},
		{"a read of a record", func() error { _, err := st.Get(t.Context(), system); return err }},
		{"a refused take", func() error { _, err := take(t, st, one("alice", still(10), 11)); return err }},
		{"a take", func() error { _, err := take(t, st, one("alice", still(10), 1)); return err }},
	} {
		name, call := c.name, c.call
		began := time.Now()
		err := call()
		if err == nil {
			t.Fatalf("%s was answered by a replica", name)
		}
		wantError(t, began, err, "")
		if text := err.Error(); !strings.Contains(text, "READONLY") && !strings.Contains(text, "not a primary") && !strings.Contains(text, "closed") && !strings.Contains(text, "EOF") && !strings.Contains(text, "is a primary") {
			t.Fatalf("%s: %v", name, err)
		}
	}
	front.to(next.Addr)
	// A client that was connecting during the change may still find the old primary, once.
	decided := func(tokens int64) (ok bool) {
		t.Helper()
		eventually(t, "the new primary decides", func() bool {
			var err error
			ok, err = take(t, st, one("alice", still(10), tokens))
			return err == nil
		})
		return ok
	}
	if decided(4) {
		t.Fatal("7 of 10 are spent, and 4 were allowed")
	}
	if !decided(3) {
		t.Fatal("3 of 10 are left, and were refused")
	}
}

// Scripts that the server has forgotten are loaded again, once each.
func TestScriptsForgotten(t *testing.T) {
	t.Parallel()
	s := start(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr})
	for range 3 {
		if ok, err := take(t, st, one("alice", still(10), 1)); !ok || err != nil {
			t.Fatalf("allowed %t, error %v", ok, err)
		}
		s.do(t, "SCRIPT", "FLUSH")
	}
	snap, err := st.Peek(t.Context(), one("alice", still(10), 1).Bucket)
	if err != nil || snap.States[0].Takes != 3 || snap.States[0].Limits[0].Debited != 3000 {
		t.Fatalf("%+v, %v: want 3 takes of 1", snap, err)
	}
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := start(t, "--requirepass", "secret")
	ctx := t.Context()
	for name, c := range map[string]struct{ address, hint string }{
		"no password":    {"redis://" + s.Addr, "password"},
		"wrong password": {"redis://:guess@" + s.Addr, "password is wrong"},
		"no TLS":         {"rediss://:secret@" + s.Addr, "TLS"},
		"nobody":         {"redis://127.0.0.1:1", "nothing listens"},
		"no socket":      {"unix:///nowhere/at/all", "the socket does not exist"},
		"not a cluster":  {"redis+cluster://:secret@" + s.Addr, "redis://"},
	} {
		began := time.Now()
		_, err := redis.Open(ctx, redis.Config{Address: c.address})
		if err == nil {
			t.Fatalf("%s: opened", name)
		}
		wantError(t, began, err, c.hint)
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "guess") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
	}
	open(t, redis.Config{Address: "redis://:secret@" + s.Addr})
	st := open(t, redis.Config{Address: "unix://" + s.Socket + "?prefix=mine", Password: "secret"})
	if ok, err := take(t, st, one("alice", still(10), 1)); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
}

// A server that may evict buckets is refused. If memory is full, nothing is decided, but state can still be read.
func TestMemory(t *testing.T) {
	t.Parallel()
	s := start(t, "--requirepass", "")
	cfg := redis.Config{Address: "redis://" + s.Addr}
	st := open(t, cfg)
	if _, err := take(t, st, one("alice", still(10), 1)); err != nil {
		t.Fatal(err)
	}
	s.do(t, "CONFIG", "SET", "maxmemory", "1")
	began := time.Now()
	_, err := take(t, st, one("alice", still(10), 1))
	wantError(t, began, err, "maxmemory")
	if snap, err := st.Peek(t.Context(), one("alice", still(10), 1).Bucket); err != nil || snap.States[0].ID == 0 {
		t.Fatalf("%+v, %v", snap, err)
	}
	s.do(t, "CONFIG", "SET", "maxmemory", "0")
	s.do(t, "CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	_, err = redis.Open(t.Context(), cfg)
	wantError(t, began, err, "noeviction")
}

// A layout from a later version of weir is not touched.
func TestLaterFormat(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.do(t, "SET", "weir:{_}:format", "2")
	began := time.Now()
	_, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + s.Addr})
	wantError(t, began, err, "upgrade")
}

// A bucket's key lives until the bucket is full plus the margin, never shorter, and leaves the index once it is gone.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := shared(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr + "?margin=1m", Prefix: prefix()})
	ttl := func(entity string) time.Duration {
		t.Helper()
		n, err := strconv.ParseInt(s.do(t, "PTTL", st.Key(one(entity, still(1), 0).Bucket)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Millisecond
	}
	between := func(what string, got, least time.Duration) {
		t.Helper()
		if got > least+time.Second || got < least-30*time.Second {
			t.Errorf("%s: lives for %v, want %v", what, got, least)
		}
	}
	hourly := &store.Limit{Name: "rph", Amount: 3_600_000, Period: time.Hour, Burst: 3_600_000}
	if _, err := take(t, st, one("alice", hourly, 1800)); err != nil {
		t.Fatal(err)
	}
	between("half an hour", ttl("alice"), 31*time.Minute)
	// The hourly limit stays in the bucket beside one that refills quickly, although the next debit names only the latter.
	quick := &store.Limit{Name: "rps", Amount: 1000, Period: time.Second, Burst: 1000}
	d := one("alice", quick, 1)
	d.Epoch = 1
	if ok, err := take(t, st, d); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
	between("a limit that was removed", ttl("alice"), 31*time.Minute)
	if _, err := st.Settle(t.Context(), store.Settle{Debits: []store.Debit{one("bob", hourly, 7200)}}); err != nil {
		t.Fatal(err)
	}
	between("in debt", ttl("bob"), 121*time.Minute)
	if _, err := st.Settle(t.Context(), store.Settle{Debits: []store.Debit{one("bob", hourly, -7200)}}); err != nil {
		t.Fatal(err)
	}
	if got := ttl("bob"); got < time.Minute-30*time.Second {
		t.Errorf("full again, and lives for %v", got)
	}
	slow := &store.Limit{Name: "x", Amount: 1, Period: 366 * 24 * time.Hour, Burst: 1e18}
	if _, err := st.Settle(t.Context(), store.Settle{Debits: []store.Debit{{Bucket: one("carol", slow, 0).Bucket, Charges: []store.Charge{{Limit: slow, Amount: math.MaxInt64 / 2}}}}}); err != nil {
		t.Fatal(err)
	}
	if got := ttl("carol"); got < 100*366*24*time.Hour {
		t.Errorf("in debt for ever, and lives for %v", got)
	}
	// An expired bucket is not listed, and does not stay in the index.
	s.do(t, "DEL", st.Key(one("bob", hourly, 0).Bucket))
	page, err := st.Buckets(t.Context(), store.BucketQuery{Namespace: "n"})
	if err != nil || len(page.States) != 2 || page.States[0].Bucket.Entity != "alice" || page.States[1].Bucket.Entity != "carol" {
		t.Fatalf("%+v, %v", page, err)
	}
	if n := s.do(t, "ZCARD", st.Index("n")); n != "2" {
		t.Errorf("the index holds %s buckets", n)
	}
}

// Buckets that come and go without ever being listed do not fill the index.
func TestIndexIsReaped(t *testing.T) {
	t.Parallel()
	s := shared(t)
	st := open(t, redis.Config{Address: "redis://" + s.Addr, Prefix: prefix()})
	const births = 2000
	for i := range births {
		d := one(strconv.Itoa(i), still(10), 1)
		if _, err := take(t, st, d); err != nil {
			t.Fatal(err)
		}
		if i >= 10 { // ten are alive
			gone := one(strconv.Itoa(i-10), still(10), 1)
			if err := st.Expire(t.Context(), gone.Bucket); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, err := strconv.Atoi(s.do(t, "ZCARD", st.Index("n"))); err != nil || n > 60 || n < 10 {
		t.Errorf("of 10 buckets the index holds %d, %v", n, err)
	}
}
