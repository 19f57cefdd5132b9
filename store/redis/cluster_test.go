package redis_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/porttest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// A cluster keeps a namespace on one node, so it passes the suite as a single server does.
func TestCluster(t *testing.T) {
	t.Parallel()
	shards := redistest.Cluster(t, 0)
	fronts, address := relays(t, shards)
	var st *redis.Store
	eventually(t, "the cluster serves all slots", func() bool {
		s, err := redis.Open(t.Context(), redis.Config{Address: address})
		if err == nil {
			st = s
		}
		return err == nil
	})
	t.Cleanup(func() { _ = st.Close() })
	t.Run("namespaces", func(t *testing.T) {
		t.Parallel()
		a, b := one("alice", still(10), 1), one("alice", still(10), 1)
		b.Bucket.Namespace = "m"
		if _, err := take(t, st, a, b); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a take over two nodes: %v", err)
		}
		for _, d := range []store.Debit{a, b} {
			if ok, err := take(t, st, d); !ok || err != nil {
				t.Errorf("allowed %t, error %v", ok, err)
			}
		}
		snap, err := st.Peek(t.Context(), a.Bucket, b.Bucket)
		if err != nil || snap.States[0].ID == 0 || snap.States[1].ID == 0 {
			t.Errorf("%+v, %v", snap, err)
		}
		if err := st.Forget(t.Context(), a.Bucket, b.Bucket); err != nil {
			t.Error(err)
		}
	})
	h := harness(address)
	h.Cut = func(_ testing.TB, s store.Store, n int, made bool) func() int {
		var ends []func() int
		for _, f := range fronts { // one of which leads to the node that has the namespace
			ends = append(ends, f.cut("\n"+s.(*redis.Store).Prefix()+":{n}:", n, made))
		}
		return func() (calls int) {
			for _, end := range ends {
				calls += end()
			}
			return calls
		}
	}
	storetest.Run(t, h)
	storetest.RunUsage(t, usageHarness(address))
}

// relays puts a relay in front of each node of a cluster, and makes the nodes name these to clients.
func relays(t *testing.T, shards []redistest.Shard) (fronts []*front, address string) {
	t.Helper()
	var addrs []string
	for _, s := range slices.Concat(shards...) {
		f := relay(t, s.Addr)
		_, port, _ := net.SplitHostPort(f.addr)
		server{s}.do(t, "CONFIG", "SET", "cluster-announce-port", port)
		fronts, addrs = append(fronts, f), append(addrs, f.addr)
	}
	eventually(t, "all nodes name the relays", func() bool {
		for _, s := range slices.Concat(shards...) {
			nodes := server{s}.do(t, "CLUSTER", "NODES")
			if slices.ContainsFunc(addrs, func(addr string) bool { return !strings.Contains(nodes, addr+"@") }) {
				return false
			}
		}
		return true
	})
	return fronts, "redis+cluster://" + strings.Join(addrs, ",")
}

// Sentinels name the primary, and its successor after a failover.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary, replica := start(t), start(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica.do(t, "REPLICAOF", host, port)
	watcher := start(t, "--sentinel") // needs its own file: see launch
	watcher.do(t, "SENTINEL", "MONITOR", "cell", host, port, "1")
	watcher.do(t, "SENTINEL", "SET", "cell", "down-after-milliseconds", "500")
	watcher.do(t, "SENTINEL", "SET", "cell", "failover-timeout", "3000")
	st := open(t, redis.Config{Address: "redis+sentinel://" + watcher.Addr + "/cell", CallTimeout: 10 * time.Second})
	if ok, err := take(t, st, one("alice", still(10), 7)); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
	eventually(t, "the replica is known, and has what was spent", func() bool {
		return replica.do(t, "DBSIZE") == primary.do(t, "DBSIZE") && strings.Contains(watcher.do(t, "INFO", "sentinel"), "slaves=1")
	})
	primary.Kill()
	for range 3 {
		eventually(t, "the next primary decides", func() bool { _, err := st.Peek(t.Context()); return err == nil })
	}
	if ok, err := take(t, st, one("alice", still(10), 4)); ok || err != nil {
		t.Fatalf("7 of 10 are spent, and 4 were allowed %t, error %v", ok, err)
	}
}

// While a slot is being moved, no server accepts a run that mixes buckets it already has with buckets it does not. Each
// take is then decided on the server that has its bucket.
func TestTogetherMoved(t *testing.T) {
	t.Parallel()
	var nodes [2]server
	for i := range nodes {
		nodes[i] = start(t, "--cluster-enabled", "yes", "--cluster-port", porttest.Free(t))
	}
	from, to := nodes[0], nodes[1]
	from.do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	host, port, _ := net.SplitHostPort(to.Addr)
	bus, _, _ := strings.Cut(strings.SplitN(to.do(t, "CLUSTER", "NODES"), "@", 2)[1], " ")
	bus, _, _ = strings.Cut(bus, ",")
	from.do(t, "CLUSTER", "MEET", host, port, bus)
	eventually(t, "the cluster serves all slots", func() bool {
		return strings.Contains(from.do(t, "CLUSTER", "INFO"), "cluster_state:ok") && strings.Contains(to.do(t, "CLUSTER", "INFO"), "cluster_state:ok")
	})
	st := open(t, redis.Config{Address: "redis+cluster://" + from.Addr, CallTimeout: time.Minute})
	there, moved := one("alice", still(10), 1), one("bob", still(10), 1)
	if ok, err := take(t, st, there); !ok || err != nil {
		t.Fatalf("allowed %t, error %v", ok, err)
	}
	slot := from.do(t, "CLUSTER", "KEYSLOT", st.Index("n"))
	to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.do(t, "CLUSTER", "MYID"))
	from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.do(t, "CLUSTER", "MYID"))
	outs, errs := st.Together([]store.Take{{Debits: []store.Debit{there}}, {Debits: []store.Debit{moved}}})
	for i, err := range errs {
		if err != nil || !outs[i].Allowed {
			t.Errorf("take %d: allowed %t, error %v", i, outs[i].Allowed, err)
		}
	}
}

// If a script is denied a command, its earlier commands have taken effect, so it is not run again.
func TestDeniedInScript(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"NOPERM this user has no permissions to access one of the keys used as arguments":                                       true,
		"NOPERM ACL failure in script: User bob has no permissions to run the 'setrange' command script: f, on @user_script:9.": false,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                               true,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                               false,
	} {
		if got := redis.Alone(said); got != want {
			t.Errorf("%s: %t", said, got)
		}
	}
}
