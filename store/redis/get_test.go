package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// TestGetInParts checks that no script reads more than 256 records, so that it delays other calls only briefly.
func TestGetInParts(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + srv.Addr, Volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	keys := make([]store.Key, 600)
	for i := range keys {
		keys[i] = store.Key{Namespace: "a", Kind: store.KindEntity, ID: fmt.Sprint(i)}
	}
	for _, i := range []int{0, 599} {
		if err := st.Commit(t.Context(), store.Write{Record: store.Record{Key: keys[i], Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := srv.Do(t.Context(), "CONFIG", "RESETSTAT"); err != nil {
		t.Fatal(err)
	}
	got, err := st.Get(t.Context(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Records {
		if r.Key != keys[i] || (r.Version > 0) != (i == 0 || i == 599) {
			t.Errorf("record %d is %+v", i, r)
		}
	}
	if len(got.Records) != 600 || got.Epoch != 2 {
		t.Errorf("got %d records at epoch %d", len(got.Records), got.Epoch)
	}
	stats, err := srv.Do(t.Context(), "INFO", "commandstats")
	calls := 0
	for line := range strings.Lines(stats) {
		if _, after, ok := strings.Cut(line, "_eval"); ok {
			var n int
			_, _ = fmt.Sscanf(after[strings.Index(after, "=")+1:], "%d", &n)
			calls += n
		}
	}
	if err != nil || calls != 4 && calls != 3 { // EVALSHA, once more by EVAL if the server did not know the script
		t.Errorf("%d scripts were run, %v:\n%s", calls, err, stats)
	}
}
