package catalog

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
	. "github.com/weirlimits/weir/store/storetest/internal/env"
)

func epochScenarios() []Scenario {
	return []Scenario{
		{Name: "raised by every commit", Run: OnStore(epochRaised)},
		{Name: "of the namespaces that it names", Run: OnStore(epochNamespaces)},
		{Name: "the same for every key", Run: OnStore(epochKeys)},
		{Name: "not raised by what is not written", Run: OnStore(epochReads)},
		{Name: "stamps limits", Run: OnStore(epochStamps)},
		{Name: "never newer than the records", Run: OnStore(func(e *Env) { epochOrder(e, e.Store) })},
		{Name: "never newer than the records of other clients", Peer: true, Run: OnStore(func(e *Env) {
			epochOrder(e, e.Peer().Store)
		})},
	}
}

func epochOf(e *Env, namespace string) uint64 {
	e.Helper()
	return e.Get(store.Key{Namespace: namespace, Kind: store.KindSystem}).Epoch
}

func epochRaised(e *Env) {
	last := epochOf(e, "n")
	raised := func(what string) {
		e.Helper()
		now := epochOf(e, "n")
		if now <= last {
			e.Fatalf("%s left the epoch at %d after %d", what, now, last)
		}
		last = now
	}
	k := Entity("alice")
	e.Commit(Put(k, 0, "a"))
	raised("a birth")
	e.Commit(Put(k, 1, "b"))
	raised("a change")
	e.Commit(Put(k, 2, "b"))
	raised("a change to the same")
	e.Commit(Del(k, 3))
	raised("a delete")
	e.Commit(Put(k, 0, "a"))
	raised("a birth again")
	e.Commit(Put(store.Key{Namespace: "n", Kind: store.KindAudit, ID: "1", Sub: "alice"}, 0, "x"))
	raised("another kind")
}

func epochNamespaces(e *Env) {
	before := map[string]uint64{}
	all := []string{"n", "m", "o", store.Registry}
	for _, ns := range all {
		e.Commit(Put(store.Key{Namespace: ns, Kind: store.KindAudit, ID: "0"}, 0, "x"))
	}
	for i, named := range [][]string{{"n"}, {"m", "o"}, {store.Registry}, {store.Registry, "n"}, {"o", "n", "m"}} {
		for _, ns := range all {
			before[ns] = epochOf(e, ns)
		}
		var writes []store.Write
		for _, ns := range named {
			writes = append(writes,
				Put(store.Key{Namespace: ns, Kind: store.KindAudit, ID: fmt.Sprint("1-", i)}, 0, "x"),
				Put(store.Key{Namespace: ns, Kind: store.KindAudit, ID: fmt.Sprint("2-", i)}, 0, "x"))
		}
		e.Commit(writes...)
		for _, ns := range named {
			if now := epochOf(e, ns); now <= before[ns] {
				e.Fatalf("the commit named %s and left its epoch at %d after %d", ns, now, before[ns])
			}
			delete(before, ns)
		}
		for ns, was := range before {
			if now := epochOf(e, ns); now != was {
				e.Fatalf("the commit did not name %s and raised its epoch from %d to %d", ns, was, now)
			}
		}
	}
}

func epochKeys(e *Env) {
	e.Commit(Put(Entity("alice"), 0, "a"))
	e.Commit(Put(Entity("bob"), 0, "b"))
	want := epochOf(e, "n")
	for _, keys := range [][]store.Key{
		{Entity("alice")}, {Entity("bob")}, {Entity("nobody")}, {Entity("bob"), Entity("nobody"), Entity("alice")},
	} {
		if got := e.Get(keys...).Epoch; got != want {
			e.Fatalf("epoch %d with %v, want %d", got, keys, want)
		}
	}
}

func epochReads(e *Env) {
	e.Commit(Put(Entity("alice"), 0, "a"))
	want := epochOf(e, "n")
	e.Pages(store.Query{Namespace: "n", Kind: store.KindEntity})
	e.Get(Entity("alice"), Entity("bob"))
	e.CommitFails(store.ErrConflict, Put(Entity("alice"), 7, "x"))
	e.CommitFails(store.ErrInvalid, Put(Entity("alice"), 1, "x"), Put(Entity("alice"), 1, "x"))
	e.Allow(Debit(Bucket("alice", "api"), Charge(Still("rpm", 10), 1)))
	e.Settle(Debit(Bucket("alice", "api"), Charge(Still("rpm", 10), 1)))
	e.Forget(Bucket("alice", "api"))
	if got := epochOf(e, "n"); got != want {
		e.Fatalf("epoch %d, want %d", got, want)
	}
}

// epochStamps checks that a bucket accepts the epochs that Get returns.
func epochStamps(e *Env) {
	b, k := Bucket("alice", "api"), Entity("alice")
	var stale store.Debit
	for v := range uint64(4) {
		e.Commit(Put(k, v, "x"))
		d := At(e.Get(k).Epoch, Debit(b, Charge(Still("rpm", int64(100+v)), 1)))
		e.Allow(d)
		if v > 0 {
			e.TakeFails(store.ErrStaleLimits, stale)
		}
		stale = d
	}
	e.WantDebt(b, Still("rpm", 103), 4*Token)
}

// epochOrder checks that a reader that sees an epoch sees everything committed up to it. Writers record the epoch that
// they see after each commit; no reader may see that epoch, or a later one, with an older record.
func epochOrder(e *Env, reader store.Store) {
	e.Helper()
	var (
		commits [epochWriters][]epochSeen // by key: the epoch seen after its version was committed
		reads   [epochWriters][]epochSeen
		mu      sync.Mutex
		writing atomic.Int64
	)
	writing.Store(epochWriters)
	e.Each(epochWriters+2, func(i int) {
		if i < epochWriters {
			defer writing.Add(-1)
			commits[i] = epochCommits(e, epochKey(i))
			return
		}
		for writing.Load() > 0 {
			got, err := reader.Get(e.Context(), epochKey(0), epochKey(1), epochKey(2))
			if err != nil {
				e.Errorf("get: %v", err)
				return
			}
			mu.Lock()
			for k, r := range got.Records {
				if want := strconv.FormatUint(r.Version, 10); r.Version > 0 && string(r.Value) != want {
					e.Errorf("version %d of %q", r.Version, r.Value)
				}
				reads[k] = append(reads[k], epochSeen{got.Epoch, r.Version})
			}
			mu.Unlock()
		}
	})
	for k := range reads {
		for _, r := range reads[k] {
			for _, c := range commits[k] {
				if r.epoch >= c.epoch && r.version < c.version {
					e.Fatalf(
						"epoch %d with version %d of %v; version %d was there at epoch %d", r.epoch, r.version,
						epochKey(k), c.version, c.epoch,
					)
				}
			}
		}
	}
}

const epochWriters = 3

// epochSeen is a record's version, and the epoch that was read with it.
type epochSeen struct{ epoch, version uint64 }

func epochKey(i int) store.Key { return Entity(fmt.Sprint("entity-", i)) }

// epochCommits commits versions of a record one after another, and returns what a read after each one sees.
func epochCommits(e *Env, k store.Key) (seen []epochSeen) {
	for v := range uint64(e.Some(100)) {
		if err := e.Store.Commit(e.Context(), Put(k, v, strconv.FormatUint(v+1, 10))); err != nil {
			e.Errorf("commit: %v", err)
			return seen
		}
		got, err := e.Store.Get(e.Context(), k)
		if err != nil || got.Records[0].Version != v+1 {
			e.Errorf("get after commit %d: version %d, error %v", v+1, got.Records[0].Version, err)
			return seen
		}
		seen = append(seen, epochSeen{got.Epoch, v + 1})
	}
	return seen
}
