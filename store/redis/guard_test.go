package redis_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// evicts reports whether a store refuses to decide because a server evicts keys.
func evicts(t testing.TB, st store.Store) bool {
	t.Helper()
	_, err := take(t, st, one("alice", still(10), 0))
	var known *store.Error
	return errors.As(err, &known) && strings.Contains(known.Err.Error(), "maxmemory-policy") &&
		strings.Contains(known.Hint, "noeviction")
}

// A store looks at the eviction policy again after each reconnection, and now and then. It does not decide while keys
// are evicted, and decides again by itself.
func TestEvictionLater(t *testing.T) {
	t.Parallel()
	s := start(t)
	cfg := redis.Config{Address: "redis://" + s.Addr}
	reconnects, looks := open(t, cfg), open(t, cfg.LookEvery(20*time.Millisecond))
	if evicts(t, reconnects) || evicts(t, looks) {
		t.Fatal("refused to decide before the server evicted anything")
	}
	s.do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	eventually(t, "a look finds it", func() bool { return evicts(t, looks) })
	if evicts(t, reconnects) {
		t.Fatal("looked again without a new connection, within a minute")
	}
	s.do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	eventually(t, "a reconnection finds it", func() bool { return evicts(t, reconnects) })
	for _, st := range []store.Store{reconnects, looks} {
		eventually(t, "buckets can be shown", func() bool { // each connection is found to be closed once
			_, err := st.Peek(t.Context(), one("alice", still(10), 0).Bucket)
			return err == nil
		})
	}
	s.do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	eventually(t, "both decide again", func() bool { return !evicts(t, looks) && !evicts(t, reconnects) })
}

// An account that may no longer read INFO keeps the store from deciding: nobody can see whether the server evicts.
func TestEvictionUnreadable(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.do(t, "ACL", "SETUSER", "weir", "on", ">pw", "+@all", "~*", "&*")
	st := open(t, redis.Config{Address: "redis://weir:pw@" + s.Addr}.LookEvery(20*time.Millisecond))
	s.do(t, "ACL", "SETUSER", "weir", "-info")
	eventually(t, "it is refused", func() bool {
		_, err := take(t, st, one("alice", still(10), 0))
		return err != nil && strings.Contains(err.Error(), "NOPERM")
	})
	if _, err := redis.Open(t.Context(), redis.Config{Address: "redis://weir:pw@" + s.Addr}); err == nil {
		t.Error("it was opened")
	}
	s.do(t, "ACL", "SETUSER", "weir", "+info")
	eventually(t, "it decides again", func() bool { _, err := take(t, st, one("alice", still(10), 0)); return err == nil })
}

// Of a cluster, every primary counts.
func TestEvictionInCluster(t *testing.T) {
	t.Parallel()
	shards := redistest.Cluster(t, 0)
	cfg := redis.Config{Address: "redis+cluster://" + shards[0][0].Addr}
	var st *redis.Store
	eventually(t, "the cluster serves all slots", func() (ok bool) {
		s, err := redis.Open(t.Context(), cfg.LookEvery(20*time.Millisecond))
		st = s
		return err == nil
	})
	t.Cleanup(func() { _ = st.Close() })
	for _, shard := range shards {
		node := server{shard[0]}
		node.do(t, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
		eventually(t, "it is found on "+node.Addr, func() bool { return evicts(t, st) })
		node.do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		eventually(t, "it decides again", func() bool { return !evicts(t, st) })
	}
}

// A primary that evicts is found although another one does not answer.
func TestEvictionBesideSilence(t *testing.T) {
	t.Parallel()
	shards := redistest.Cluster(t, 0)
	silent, evicting := shards[0][0], server{shards[1][0]}
	cfg := redis.Config{Address: "redis+cluster://" + evicting.Addr}
	var st *redis.Store
	eventually(t, "the cluster serves all slots", func() (ok bool) {
		s, err := redis.Open(t.Context(), cfg.LookEvery(20*time.Millisecond))
		st = s
		return err == nil
	})
	t.Cleanup(func() { _ = st.Close() })
	silent.Kill()
	evicting.do(t, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	eventually(t, "it is found", func() bool { return evicts(t, st) })
	evicting.do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	eventually(t, "it is found to be right again", func() bool { return !evicts(t, st) })
}

// A replica that evicts is found once it is promoted.
func TestEvictionAfterFailover(t *testing.T) {
	t.Parallel()
	old, next := start(t), start(t, "--maxmemory-policy", "allkeys-random")
	front := relay(t, old.Addr)
	st := open(t, redis.Config{Address: "redis://" + front.addr})
	if evicts(t, st) {
		t.Fatal("refused to decide")
	}
	host, port, _ := net.SplitHostPort(old.Addr)
	next.do(t, "REPLICAOF", host, port)
	next.do(t, "REPLICAOF", "NO", "ONE")
	front.to(next.Addr)
	old.Kill()
	eventually(t, "it is found", func() bool { return evicts(t, st) })
}

// A server that persists nothing is refused unless that is accepted.
func TestPersistence(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args           []string
		user, want     string
		ok, okVolatile bool
	}{
		"none":             {[]string{"--save", ""}, "", "every bucket and every limit", false, true},
		"append-only":      {[]string{"--save", "", "--appendonly", "yes"}, "", "append-only file, fsync everysec", true, true},
		"snapshots":        {nil, "", "snapshots only", true, true},
		"hidden":           {nil, "weir", "CONFIG GET is not permitted", false, true},
		"hidden, but both": {[]string{"--appendonly", "yes"}, "weir", "append-only file", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.args...)
			address := "redis://"
			if tt.user != "" { // the account in the guide
				s.do(t, "ACL", "SETUSER", tt.user, "on", ">pw", "+@read", "+@write", "+@scripting", "+@connection", "+info", "+role", "+time", "~weir:*", "&weir:*")
				address += tt.user + ":pw@"
			}
			address += s.Addr
			for volatile, ok := range map[string]bool{"": tt.ok, "?volatile=false": tt.ok, "?volatile=true": tt.okVolatile} {
				st, err := redis.Open(t.Context(), redis.Config{Address: address + volatile})
				if err == nil {
					_ = st.Close()
				}
				var known *store.Error
				if (err == nil) != ok || err != nil && (!errors.As(err, &known) || !strings.Contains(known.Hint, "volatile=true")) {
					t.Errorf("%q: %v", volatile, err)
				}
			}
			found := false
			for _, f := range redis.Inspect(t.Context(), redis.Config{Address: address}) {
				if f.Name != "persistence" {
					continue
				}
				found = true
				if text := f.Detail; (f.Err == nil) != tt.ok || f.Err != nil && !strings.Contains(f.Err.Error(), tt.want) ||
					f.Err == nil && !strings.Contains(text, tt.want) {
					t.Errorf("found %q, %v, want %q", text, f.Err, tt.want)
				}
			}
			if !found {
				t.Error("doctor shows nothing")
			}
		})
	}
}

// With an append-only file that it always syncs, a server that is killed has everything when it is back. With everysec,
// it writes the file later if a sync is slow, and loses what it has answered meanwhile.
func TestKilledWithFile(t *testing.T) {
	t.Parallel()
	s := start(t, "--appendonly", "yes", "--appendfsync", "always")
	st := open(t, redis.Config{Address: "redis://" + s.Addr})
	for range 7 {
		if ok, err := take(t, st, one("alice", still(10), 1)); !ok || err != nil {
			t.Fatalf("allowed %t, error %v", ok, err)
		}
	}
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it answers", func() bool {
		ok, err := take(t, st, one("alice", still(10), 4))
		if ok {
			t.Fatal("7 of 10 are spent, and 4 were allowed")
		}
		return err == nil
	})
}
