package storetest

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/store"
)

func epochScenarios() []scenario {
	return []scenario{
		{name: "raised by every commit", run: each(epochRaised)},
		{name: "of the namespaces that it names", run: each(epochNamespaces)},
		{name: "the same for every key", run: each(epochKeys)},
		{name: "not raised by what is not written", run: each(epochReads)},
		{name: "stamps limits", run: each(epochStamps)},
		{name: "never newer than the records", run: each(func(e *env) { e.epochOrder(e.store) })},
		{name: "never newer than the records of other clients", peer: true, run: each(func(e *env) {
			e.epochOrder(e.peer().store)
		})},
	}
}

func (e *env) epochOf(namespace string) uint64 {
	e.Helper()
	return e.get(store.Key{Namespace: namespace, Kind: store.KindSystem}).Epoch
}

func epochRaised(e *env) {
	last := e.epochOf("n")
	raised := func(what string) {
		e.Helper()
		now := e.epochOf("n")
		if now <= last {
			e.Fatalf("%s left the epoch at %d after %d", what, now, last)
		}
		last = now
	}
	k := entity("alice")
	e.commit(put(k, 0, "a"))
	raised("a birth")
	e.commit(put(k, 1, "b"))
	raised("a change")
	e.commit(put(k, 2, "b"))
	raised("a change to the same")
	e.commit(del(k, 3))
	raised("a delete")
	e.commit(put(k, 0, "a"))
	raised("a birth again")
	e.commit(put(store.Key{Namespace: "n", Kind: store.KindAudit, ID: "1", Sub: "alice"}, 0, "x"))
	raised("another kind")
}

func epochNamespaces(e *env) {
	before := map[string]uint64{}
	all := []string{"n", "m", "o", store.Registry}
	for _, ns := range all {
		e.commit(put(store.Key{Namespace: ns, Kind: store.KindAudit, ID: "0"}, 0, "x"))
	}
	for i, named := range [][]string{{"n"}, {"m", "o"}, {store.Registry}, {store.Registry, "n"}, {"o", "n", "m"}} {
		for _, ns := range all {
			before[ns] = e.epochOf(ns)
		}
		var writes []store.Write
		for _, ns := range named {
			writes = append(writes,
				put(store.Key{Namespace: ns, Kind: store.KindAudit, ID: fmt.Sprint("1-", i)}, 0, "x"),
				put(store.Key{Namespace: ns, Kind: store.KindAudit, ID: fmt.Sprint("2-", i)}, 0, "x"))
		}
		e.commit(writes...)
		for _, ns := range named {
			if now := e.epochOf(ns); now <= before[ns] {
				e.Fatalf("the commit named %s and left its epoch at %d after %d", ns, now, before[ns])
			}
			delete(before, ns)
		}
		for ns, was := range before {
			if now := e.epochOf(ns); now != was {
				e.Fatalf("the commit did not name %s and raised its epoch from %d to %d", ns, was, now)
			}
		}
	}
}

func epochKeys(e *env) {
	e.commit(put(entity("alice"), 0, "a"))
	e.commit(put(entity("bob"), 0, "b"))
	want := e.epochOf("n")
	for _, keys := range [][]store.Key{
		{entity("alice")}, {entity("bob")}, {entity("nobody")}, {entity("bob"), entity("nobody"), entity("alice")},
	} {
		if got := e.get(keys...).Epoch; got != want {
			e.Fatalf("epoch %d with %v, want %d", got, keys, want)
		}
	}
}

func epochReads(e *env) {
	e.commit(put(entity("alice"), 0, "a"))
	want := e.epochOf("n")
	e.pages(store.Query{Namespace: "n", Kind: store.KindEntity})
	e.get(entity("alice"), entity("bob"))
	e.commitFails(store.ErrConflict, put(entity("alice"), 7, "x"))
	e.commitFails(store.ErrInvalid, put(entity("alice"), 1, "x"), put(entity("alice"), 1, "x"))
	e.allow(debit(bkt("alice", "api"), charge(still("rpm", 10), 1)))
	e.settle(debit(bkt("alice", "api"), charge(still("rpm", 10), 1)))
	e.forget(bkt("alice", "api"))
	if got := e.epochOf("n"); got != want {
		e.Fatalf("epoch %d, want %d", got, want)
	}
}

// epochStamps checks that a bucket accepts the epochs that Get returns.
func epochStamps(e *env) {
	b, k := bkt("alice", "api"), entity("alice")
	var stale store.Debit
	for v := range uint64(4) {
		e.commit(put(k, v, "x"))
		d := at(e.get(k).Epoch, debit(b, charge(still("rpm", int64(100+v)), 1)))
		e.allow(d)
		if v > 0 {
			e.takeFails(store.ErrStaleLimits, stale)
		}
		stale = d
	}
	e.wantDebt(b, still("rpm", 103), 4*tok)
}

// epochOrder checks that a reader that sees an epoch sees everything committed up to it. Writers record the epoch that
// they see after each commit; no reader may see that epoch, or a later one, with an older record.
func (e *env) epochOrder(reader store.Store) {
	e.Helper()
	var (
		commits [epochWriters][]epochSeen // by key: the epoch seen after its version was committed
		reads   [epochWriters][]epochSeen
		mu      sync.Mutex
		writing atomic.Int64
	)
	writing.Store(epochWriters)
	e.each(epochWriters+2, func(i int) {
		if i < epochWriters {
			defer writing.Add(-1)
			commits[i] = e.epochCommits(epochKey(i))
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

func epochKey(i int) store.Key { return entity(fmt.Sprint("entity-", i)) }

// epochCommits commits versions of a record one after another, and returns what a read after each one sees.
func (e *env) epochCommits(k store.Key) (seen []epochSeen) {
	for v := range uint64(e.some(100)) {
		if err := e.store.Commit(e.Context(), put(k, v, strconv.FormatUint(v+1, 10))); err != nil {
			e.Errorf("commit: %v", err)
			return seen
		}
		got, err := e.store.Get(e.Context(), k)
		if err != nil || got.Records[0].Version != v+1 {
			e.Errorf("get after commit %d: version %d, error %v", v+1, got.Records[0].Version, err)
			return seen
		}
		seen = append(seen, epochSeen{got.Epoch, v + 1})
	}
	return seen
}
