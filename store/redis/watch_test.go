package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

func openAt(t *testing.T, cfg redis.Config) *redis.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func recordOf(ns string, kind store.Kind, id, sub string) store.Write {
	return store.Write{Record: store.Record{Key: store.Key{Namespace: ns, Kind: kind, ID: id, Sub: sub}, Value: []byte("{}")}}
}

// Another store is told of each commit: every key except audit events, with the epoch that it then reads.
func TestWatch(t *testing.T) {
	t.Parallel()
	cfg := redis.Config{Address: "redis://" + shared(t).Addr, Prefix: prefix()}
	s, peer := openAt(t, cfg), openAt(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	ready, told, ended := make(chan bool, 1), make(chan store.Changes, 4), make(chan error, 1)
	go func() {
		ended <- peer.Watch(ctx, func() { ready <- true }, func(ch store.Changes) { told <- ch })
	}()
	<-ready
	const odd = "n:{s}%"
	writes := []store.Write{
		recordOf(odd, store.KindEntityLimits, "alice:a", "gpt-4"), recordOf(odd, store.KindSystem, "", ""),
		recordOf(odd, store.KindAudit, "1", "system"), recordOf("other", store.KindEntity, "bob", ""),
		{Record: store.Record{Key: store.Key{Namespace: "third", Kind: store.KindSystem}}, Check: true},
	}
	if err := s.Commit(t.Context(), writes...); err != nil {
		t.Fatal(err)
	}
	got := map[string]store.Changes{}
	for range 2 {
		ch := <-told
		got[ch.Namespace] = ch
	}
	want := map[string]store.Changes{
		odd:     {Namespace: odd, Epoch: 1, Keys: []store.Key{writes[0].Record.Key, writes[1].Record.Key}},
		"other": {Namespace: "other", Epoch: 1, Keys: []store.Key{writes[3].Record.Key}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if ns, err := peer.Epochs(t.Context(), "third", odd, "other"); err != nil || !cmp.Equal(ns, []uint64{0, 1, 1}) {
		t.Errorf("epochs %v, error %v", ns, err)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// If the account may not publish, its commit is still made.
func TestCommitWithoutChannel(t *testing.T) {
	t.Parallel()
	server, p := start(t), prefix()
	server.do(t, "ACL", "SETUSER", "plain", "on", ">secret", "resetchannels", "~*", "+@all", "-@pubsub")
	s := openAt(t, redis.Config{Address: "redis://" + server.Addr, Prefix: p, Username: "plain", Password: "secret"})
	w := recordOf("default", store.KindSystem, "", "")
	if err := s.Commit(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if ns, err := s.Epochs(t.Context(), "default"); err != nil || ns[0] != 1 {
		t.Errorf("epochs %v, error %v", ns, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Watch(ctx, func() {}, func(store.Changes) {}); err == nil || ctx.Err() != nil {
		t.Errorf("watched without the right to: %v", err)
	}
}

// If the server goes away, the watch ends, so that the watcher notices.
func TestWatchBreaksOff(t *testing.T) {
	t.Parallel()
	server := start(t)
	s := openAt(t, redis.Config{Address: "redis://" + server.Addr, Prefix: prefix()})
	ready, ended := make(chan bool, 8), make(chan error, 1)
	go func() {
		ended <- s.Watch(t.Context(), func() { ready <- true }, func(store.Changes) {})
	}()
	<-ready
	server.Kill()
	if err := <-ended; err == nil { // otherwise the test never ends
		t.Error("no error")
	}
}
