package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// Usage begins with the first pass: what buckets counted before is not booked, what they count later is.
func TestUsageBegins(t *testing.T) {
	t.Parallel()
	s := open(t, redis.Config{Address: "redis://" + shared(t).Addr, Prefix: prefix(), CallTimeout: time.Minute})
	b := &books{T: t, s: s, l: s.Ledger(store.Retention{})}
	b.take("alice", still(100), 7)
	reading := store.Reading{
		Bucket: one("bob", nil, 0).Bucket, Source: "p", ID: 1, At: time.Now(),
		Counts: []store.LimitFigures{{Limit: "rpm", Figures: store.Figures{Debited: 1000}}},
	}
	if err := s.Count(t.Context(), reading); err != nil {
		t.Fatal(err)
	}
	known(t, s, b.l, "n")
	b.take("alice", still(100), 2)
	b.take("carol", still(100), 1)
	pass(t, b.l)
	sum := int64(0)
	for _, n := range b.all(store.OfNamespace) {
		sum += n
	}
	if sum != 3 {
		t.Errorf("booked %d tokens, want the 3 that came after the first pass", sum)
	}
	if err := s.Count(t.Context(), reading); err != nil { // now it is counted
		t.Fatal(err)
	}
	if got := b.all(store.OfNamespace); got["rpm"] != 4 {
		t.Errorf("booked %v with what a process told", got)
	}
}

// A namespace that cannot be read does not hold up others, and its own usage begins once it can be read.
func TestUsageBeginsLater(t *testing.T) {
	t.Parallel()
	srv := shared(t)
	b := bookkeeping(t, srv.Addr, store.Retention{})
	other := func(tokens int64) {
		t.Helper()
		d := one("alice", still(100), tokens)
		d.Bucket.Namespace = "m"
		if ok, err := take(t, b.s, d); !ok || err != nil {
			t.Fatalf("allowed %t, error %v", ok, err)
		}
	}
	b.take("alice", still(100), 1)
	other(5)
	srv.do(t, "DEL", b.cfg.Prefix+":{_}:us", b.cfg.Prefix+":{n}:ua") // as if usage had never been kept
	index := b.cfg.Prefix + ":{m}:i"
	srv.do(t, "RENAME", index, index+"x")
	srv.do(t, "SET", index, "none")
	k := store.Key{Namespace: store.Registry, Kind: store.KindNamespaceID, ID: "m"}
	if err := b.s.Commit(t.Context(), store.Write{Record: store.Record{Key: k, Value: []byte("{}")}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.l.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("error %v, want that of the index", err)
		}
		b.take("alice", still(100), 2)
		b.take("bob", still(100), 3)
	}
	srv.do(t, "RENAME", index+"x", index)
	pass(t, b.l)
	other(7)
	pass(t, b.l)
	b.want(store.OfNamespace, "", store.Monthly, map[string]int64{"03-01 00": 10})
	b.want(store.OfStore, "", store.Monthly, map[string]int64{"03-01 00": 17})
}

// FLUSHALL deletes usage too. What comes after the next pass is counted once.
func TestUsageFlushed(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := bookkeeping(t, s.Addr, store.Retention{})
	b.take("alice", still(100), 5)
	pass(t, b.l)
	s.do(t, "FLUSHALL")
	if _, err := b.s.Usage(t.Context(), store.UsageQuery{Namespace: "n", Of: store.OfNamespace, Window: store.Daily}); !errors.Is(err, store.ErrNoUsage) {
		t.Errorf("error %v, want %v", err, store.ErrNoUsage)
	}
	b.take("alice", still(100), 6)
	if err := b.s.Forget(t.Context(), one("alice", nil, 0).Bucket); err != nil {
		t.Fatal(err)
	}
	known(t, b.s, b.l, "n")
	b.take("alice", still(100), 7)
	pass(t, b.l)
	if got := b.all(store.OfNamespace); got["rpm"] != 7 {
		t.Errorf("booked %v, want 7", got)
	}
}

// Keys that cannot be read are reported and hold nothing else up.
func TestUsageDamaged(t *testing.T) {
	t.Parallel()
	srv := shared(t)
	b := bookkeeping(t, srv.Addr, store.Retention{})
	for _, e := range []string{"a", "b", "c", "d"} {
		b.take(e, still(100), 1)
	}
	pass(t, b.l)
	base := b.cfg.Prefix + ":{n}:"
	srv.do(t, "SET", base+"ba\x00api", "none")
	srv.do(t, "HSET", base+"ua", "b\x00api", "none")
	srv.do(t, "RPUSH", base+"ul", "x")
	srv.do(t, "SET", base+"uwhb1774994400:c\x00api", "none")
	for _, e := range []string{"b", "c", "d"} {
		b.take(e, still(100), 1)
	}
	p, err := b.l.Pass(t.Context())
	if err != nil || len(p.Bad) != 3 {
		t.Fatalf("%v, error %v, want three that cannot be read", p.Bad, err)
	}
	b.want(store.OfNamespace, "", store.Monthly, map[string]int64{"03-01 00": 6})
	if srv.do(t, "EXISTS", base+"ul") != "0" {
		t.Error("what has ended and cannot be read is kept")
	}
	told := func(entity string) store.Reading {
		return store.Reading{
			Bucket: one(entity, nil, 0).Bucket, Source: "p", ID: 1, At: evening,
			Counts: []store.LimitFigures{{Limit: "rpm", Figures: store.Figures{Debited: 1000}}},
		}
	}
	srv.do(t, "HSET", base+"up", "p\x00b\x00api", "none")
	if err := b.s.Count(t.Context(), told("no\x00name"), told("b"), told("c")); err != nil {
		t.Error(err)
	}
	b.want(store.OfNamespace, "", store.Monthly, map[string]int64{"03-01 00": 7})
}
