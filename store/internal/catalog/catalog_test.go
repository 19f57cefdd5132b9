package catalog_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/catalog"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func key(id, sub string) store.Key {
	return store.Key{Namespace: "n", Kind: store.KindAudit, ID: id, Sub: sub}
}

func put(id, sub string, expires time.Time) store.Write {
	return store.Write{Record: store.Record{Key: key(id, sub), Value: []byte(id), Expires: expires}}
}

func ids(t *testing.T, c *catalog.Catalog, q store.Query) []string {
	t.Helper()
	q.Namespace, q.Kind = "n", store.KindAudit
	var got []string
	for {
		p, err := c.List(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Records {
			got = append(got, r.Key.ID+"/"+r.Key.Sub)
		}
		if q.After = p.Next; q.After == "" {
			return got
		}
	}
}

// TestOrder: records are ordered bytewise by ID, then Sub, in whatever order they arrived, and in exact reverse when
// listed backwards.
func TestOrder(t *testing.T) {
	t.Parallel()
	want := []string{"\x00/", "A/", "a/", "a/\xff", "a\x00/a", "b/1", "b/10", "b/2", "b b/", "é/", "\xff/"}
	for _, reverse := range []bool{false, true} {
		c := catalog.New(func() time.Time { return noon })
		order := slices.Clone(want)
		if reverse {
			slices.Reverse(order)
		}
		for i, s := range order {
			at := len(s) - 1
			for s[at] != '/' {
				at--
			}
			if w := put(s[:at], s[at+1:], time.Time{}); i%2 == 0 {
				c.Load(store.Record{Key: w.Record.Key, Version: 3})
			} else if err := c.Commit([]store.Write{w}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, most := range []int{0, 1, 2, 3} {
			if got := ids(t, c, store.Query{Max: most}); !slices.Equal(got, want) {
				t.Errorf("%d at a time: %q", most, got)
			}
			backwards := slices.Clone(want)
			slices.Reverse(backwards)
			if got := ids(t, c, store.Query{Max: most, Reverse: true}); !slices.Equal(got, backwards) {
				t.Errorf("%d at a time, backwards: %q", most, got)
			}
			if got := ids(t, c, store.Query{Max: most, ID: "b"}); !slices.Equal(got, []string{"b/1", "b/10", "b/2"}) {
				t.Errorf("of b: %q", got)
			}
			if got := ids(t, c, store.Query{Max: most, ID: "b", Reverse: true}); !slices.Equal(got, []string{"b/2", "b/10", "b/1"}) {
				t.Errorf("of b, backwards: %q", got)
			}
		}
	}
}

// TestExpired: an expired record is absent, and is removed from memory and file as others are written.
func TestExpired(t *testing.T) {
	t.Parallel()
	now := noon
	c := catalog.New(func() time.Time { return now })
	file := map[store.Key]bool{}
	persist := func(rs []store.Record, _ map[string]uint64) error {
		for _, r := range rs {
			if r.Version == 0 {
				delete(file, r.Key)
			} else {
				file[r.Key] = true
			}
		}
		return nil
	}
	for i := range 100 {
		if err := c.Commit([]store.Write{put(fmt.Sprintf("%03d", i), "", noon.Add(time.Hour))}, persist); err != nil {
			t.Fatal(err)
		}
	}
	now = noon.Add(time.Hour)
	if got := ids(t, c, store.Query{}); len(got) != 0 {
		t.Fatalf("listed %q", got)
	}
	if got, err := c.Get([]store.Key{key("007", "")}); err != nil || got.Records[0].Version != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := c.Commit([]store.Write{put("007", "", time.Time{})}, persist); err != nil { // as if it had never existed
		t.Fatal(err)
	}
	if got, err := c.Get([]store.Key{key("007", "")}); err != nil || got.Records[0].Version != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i := range 60 {
		if err := c.Commit([]store.Write{put(fmt.Sprintf("late-%02d", i), "", time.Time{})}, persist); err != nil {
			t.Fatal(err)
		}
	}
	if len(file) != 61 {
		t.Errorf("%d records in the file, want the 61 that have not expired", len(file))
	}
	if !file[key("007", "")] {
		t.Error("a record that was written again went with the one that had expired")
	}
}

// TestPersist: a commit becomes visible only once it is durable, and never if persisting fails.
func TestPersist(t *testing.T) {
	t.Parallel()
	c := catalog.New(nil)
	unseen := func() {
		t.Helper()
		got, err := c.Get([]store.Key{key("a", "")})
		if err != nil || got.Epoch != 0 || got.Records[0].Version != 0 {
			t.Errorf("seen: %+v, %v", got, err)
		}
	}
	full := errors.New("full")
	for _, fail := range []error{full, nil} {
		err := c.Commit([]store.Write{put("a", "", time.Time{})}, func(rs []store.Record, epochs map[string]uint64) error {
			unseen()
			if len(rs) != 1 || rs[0].Version != 1 || epochs["n"] != 1 {
				t.Errorf("to be written: %+v, %v", rs, epochs)
			}
			return fail
		})
		if !errors.Is(err, fail) {
			t.Fatalf("error %v", err)
		}
		if fail != nil {
			unseen()
		}
	}
	if got, err := c.Get([]store.Key{key("a", "")}); err != nil || got.Epoch != 1 || got.Records[0].Version != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestCheckOnly: an assertion alone writes nothing, and raises no epoch.
func TestCheckOnly(t *testing.T) {
	t.Parallel()
	c := catalog.New(nil)
	c.LoadEpoch("n", 41)
	w := put("a", "", time.Time{})
	if err := c.Commit([]store.Write{w}, nil); err != nil {
		t.Fatal(err)
	}
	w.Check, w.Record.Version = true, 1
	if err := c.Commit([]store.Write{w}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get([]store.Key{key("a", "")}); err != nil || got.Epoch != 42 {
		t.Fatalf("got %+v, %v", got, err)
	}
	w.Record.Version = 2
	if err := c.Commit([]store.Write{w}, nil); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("error %v", err)
	}
}

// TestOneWins: of several writers that saw the same version, one may write.
func TestOneWins(t *testing.T) {
	t.Parallel()
	c := catalog.New(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for range 50 {
		wg.Go(func() {
			err := c.Commit([]store.Write{put("a", "", time.Time{})}, nil)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, store.ErrConflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d have won", won)
	}
}
