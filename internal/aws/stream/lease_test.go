package stream_test

import (
	"testing"
	"time"
)

// Each reader's position in a shard is kept while the shard is read, and for longer than the stream retains records. It
// is not kept forever, even if the shard was never read to its end.
func TestLeasesEnd(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	const day = 24 * time.Hour
	known := func() int {
		t.Helper()
		st.fake.Sweep(st.clock.Now())
		leases, err := st.store.StreamLeases(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(leases)
	}
	lease, ok, err := st.store.LeaseStream(t.Context(), "left", "me", "", 30*time.Second)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, ok, err := st.store.LeaseStream(t.Context(), "at once", "me", "", 30*time.Second); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for range 5 { // it is read all the time
		st.clock.Advance(day)
		lease.After = "7"
		if lease, ok, err = st.store.KeepStream(t.Context(), lease, 30*time.Second); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if n := known(); n != 1 {
		t.Fatalf("%d shards are known, want that which is read", n)
	}
	st.clock.Advance(2 * day)
	if n := known(); n != 1 {
		t.Errorf("%d shards are known after two days", n)
	}
	st.clock.Advance(2 * day)
	if n := known(); n != 0 {
		t.Errorf("%d shards are known after four days", n)
	}
	if got, ok, err := st.store.LeaseStream(t.Context(), "left", "other", "", 30*time.Second); err != nil || !ok || got.After != "" {
		t.Errorf("taken again: %+v %t %v", got, ok, err)
	}
}
