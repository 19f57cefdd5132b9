package disk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/meter"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

// consumed returns the namespace's consumption of tpm, and in how many requests.
func (r *rig) consumed(s *disk.Store) (tokens, requests int64) {
	r.Helper()
	page, err := s.Usage(r.Context(), store.UsageQuery{
		Namespace: "n", Of: store.OfNamespace, Window: store.Monthly, From: noon.AddDate(-1, 0, 0), To: noon.AddDate(1, 0, 0),
	})
	if err != nil {
		r.Fatal(err)
	}
	for _, rec := range page.Records {
		for i := range rec.Counts {
			if c := &rec.Counts[i]; c.Limit == "" {
				requests += c.Requests
			} else {
				tokens += c.Consumed() / 1000
			}
		}
	}
	return tokens, requests
}

func (r *rig) wantConsumed(s *disk.Store, tokens, requests int64) {
	r.Helper()
	if t, n := r.consumed(s); t != tokens || n != requests {
		r.Fatalf("consumed %d by %d requests, want %d by %d", t, n, tokens, requests)
	}
}

// crashedWithUsage is like crashed, but also copies the usage file.
func (r *rig) crashedWithUsage() *rig {
	r.Helper()
	raw, err := os.ReadFile(filepath.Join(r.dir, disk.UsageFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Fatal(err)
	}
	c := r.crashed()
	if raw != nil {
		if err := os.WriteFile(filepath.Join(c.dir, disk.UsageFile), raw, 0o600); err != nil {
			r.Fatal(err)
		}
	}
	return c
}

// TestUsageReopened checks that usage is the same after a clean close, after a crash, and after a second crash before
// anything was written: nothing is counted twice and nothing durable is lost.
func TestUsageReopened(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Always)
	l := still("tpm", 1000)
	s := r.open()
	r.allow(s, debit(alice, l, 10), debit(bob, l, 5))
	r.close(s)

	s = r.open()
	r.wantConsumed(s, 15, 2)
	r.allow(s, debit(alice, l, 20))
	if err := r.settle(s, "", debit(alice, l, -3)); err != nil {
		t.Fatal(err)
	}
	r.allow(s, debit(alice, l, 1)) // also makes the return durable
	c := r.crashedWithUsage()
	r.wantConsumed(s, 33, 4)
	after := r.crashedWithUsage()

	s = c.open()
	c.wantConsumed(s, 33, 4)
	again := c.crashedWithUsage() // which hands in the same counters again
	s = again.open()
	again.wantConsumed(s, 33, 4)
	s = after.open()
	after.wantConsumed(s, 33, 4)
	after.allow(s, debit(alice, l, 2))
	after.wantConsumed(s, 35, 5)
}

// TestUsageReset checks that what a bucket spent before a reset is counted, even if a crash follows at once.
func TestUsageReset(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Always)
	l := still("tpm", 100)
	s := r.open()
	r.allow(s, debit(alice, l, 100))
	if err := s.Forget(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	c := r.crashedWithUsage()
	r.allow(s, debit(alice, l, 100))
	r.wantConsumed(s, 200, 2)
	s = c.open()
	c.wantConsumed(s, 100, 1)
}

// TestUsageEvicted counts buckets that fill up, are evicted and created again, over hours and through a crash.
func TestUsageEvicted(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	r := setup(t, disk.Ahead)
	l := perSecond("tpm", 10)
	s := r.open()
	var want int64
	for range 3 {
		for i := range 3000 {
			r.allow(s, debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint(i), Resource: "api"}, l, 7))
			want += 7
		}
		r.clock.Advance(25 * time.Minute)
	}
	r.wantConsumed(s, want, want/7)
	s = r.crashedWithUsage().open()
	if got, _ := r.consumed(s); got != want {
		t.Errorf("consumed %d after a crash, want %d: all of it was in the file of usage", got, want)
	}
}

// TestUsageTurns checks that each debit is booked to its own hour, even if the readings are booked later.
func TestUsageTurns(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	l := still("tpm", 1000)
	s := r.open()
	for n := range int64(4) {
		r.allow(s, debit(alice, l, n+1))
		r.clock.Advance(time.Hour)
	}
	page, err := s.Usage(t.Context(), store.UsageQuery{Namespace: "n", Of: store.OfBucket, Window: store.Hourly, From: noon.Add(-time.Hour), To: noon.Add(5 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Records) != 4 {
		t.Fatalf("%d hours, want 4", len(page.Records))
	}
	for n, rec := range page.Records {
		if want := noon.Truncate(time.Hour).Add(time.Duration(n) * time.Hour); !rec.Start.Equal(want) || rec.Counts[1].Consumed() != int64(n+1)*1000 {
			t.Errorf("hour %s has %+v, want %d tokens in %s", rec.Start, rec.Counts, n+1, want)
		}
	}
}

// TestUsageLooks checks that reading usage creates no file, and that a damaged usage file does not affect limits.
func TestUsageLooks(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	s := r.open()
	r.wantConsumed(s, 0, 0)
	r.close(s)
	file := filepath.Join(r.dir, disk.UsageFile)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("looking has made %s: %v", file, err)
	}
	if err := os.WriteFile(file, []byte("this is something else, and long enough to be read as a page of a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = r.open()
	l := still("tpm", 100)
	r.allow(s, debit(alice, l, 1))
	var e *store.Error
	_, err := s.Usage(t.Context(), store.UsageQuery{Namespace: "n", Of: store.OfBucket, Window: store.Daily, From: noon, To: noon.Add(time.Hour)})
	if !errors.As(err, &e) || e.Key != file || e.Hint == "" {
		t.Fatalf("error %v, want one about %s with a hint", err, file)
	}
	if err := s.Close(); err == nil {
		t.Error("closed without a word, though usage could not be written")
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s = r.open()
	r.wantConsumed(s, 1, 1)
	r.wantLeft(s, alice, l, 99)
}

// TestUsageTop ranks many entities over two hours. The time that this takes for 100,000 is a row of bench.
func TestUsageTop(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Off)
	s := r.open()
	const entities, again = 5000, 500 // also debited an hour later
	l := still("tpm", 1000)
	for i := range entities + again {
		if i == entities {
			r.clock.Advance(time.Hour)
		}
		r.allow(s, debit(store.Bucket{Namespace: "n", Entity: fmt.Sprintf("entity-%06d", i%entities), Resource: "api"}, l, int64(i%entities%499)+1))
	}
	top, err := meter.Top(t.Context(), s.Usage, store.UsageQuery{
		Namespace: "n", Of: store.OfBucket, Window: store.Hourly, From: noon.Add(-time.Hour), To: noon.Add(2 * time.Hour), Max: 3,
	}, "tpm", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range top {
		got = append(got, fmt.Sprint(u.ID, " ", u.Counts[1].Consumed()/1000))
	}
	if want := []string{"entity-000498 998", "entity-000497 996", "entity-000496 994"}; !slices.Equal(got, want) {
		t.Fatalf("top %q, want %q", got, want)
	}
}
