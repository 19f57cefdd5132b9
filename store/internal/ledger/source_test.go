package ledger_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

type figure struct {
	window store.Window
	start  int64
	figure ledger.Figure
}

func gather(sum map[figure]int64, deltas []ledger.Delta) {
	for _, d := range deltas {
		k := figure{d.Window, d.Start, d.Figure}
		if sum[k] += d.Amount; sum[k] == 0 {
			delete(sum, k)
		}
	}
}

func reading(id uint64, minute, debited int64) ledger.Reading {
	return ledger.Reading{ID: id, Minute: minute, Counts: []ledger.Count{{Limit: "l", Figure: ledger.Debited, Value: debited}}}
}

// Whatever comes twice, in another order within the open minutes, or after the account was stored and read again, the
// windows contain each amount in its minute.
func TestSourceIsASetOfSights(t *testing.T) {
	t.Parallel()
	from := ledger.MinuteOf(time.Date(2026, time.March, 31, 23, 50, 0, 0, time.UTC))
	rapid.Check(t, func(t *rapid.T) {
		want := make(map[figure]int64)
		var sights []ledger.Reading
		minute, id, debited := from, uint64(1), int64(0)
		for i := range rapid.IntRange(1, 12).Draw(t, "sights") {
			minute += rapid.Int64Range(0, 1).Draw(t, "later")
			if rapid.IntRange(0, 5).Draw(t, "born") == 0 {
				id, debited = uint64(i+1)*0x9e3779b97f4a7c15>>1, 0 // in no order
			}
			amount := rapid.Int64Range(1, 100).Draw(t, "amount")
			debited += amount
			sights = append(sights, reading(id, minute, debited))
			for _, w := range store.Windows {
				want[figure{w, w.Start(time.Unix(minute*60, 0)).Unix(), ledger.Debited}] += amount
			}
		}
		order := rapid.Permutation(append(sights, sights...)).Draw(t, "order")
		var s ledger.Source
		got := make(map[figure]int64)
		for len(order) > 0 {
			n := rapid.IntRange(1, len(order)).Draw(t, "batch")
			gather(got, s.See(order[:n], ledger.Late))
			order = order[n:]
			raw := s.Append(nil)
			if err := s.Decode(raw); err != nil {
				t.Fatal(err)
			}
		}
		maps.DeleteFunc(got, func(k figure, _ int64) bool { return k.figure == ledger.Peak })
		if !maps.Equal(got, want) {
			t.Errorf("windows %v, want %v", got, want)
		}
	})
}

func TestSourceBeginsWhereOthersHaveCounted(t *testing.T) {
	t.Parallel()
	var s ledger.Source
	got := make(map[figure]int64)
	old := reading(1, 1000, 500)
	old.Base = true
	gather(got, s.See([]ledger.Reading{old, reading(1, 5000, 510)}, ledger.Late))
	gather(got, s.See([]ledger.Reading{old, reading(1, 5000, 510)}, ledger.Late)) // already known
	hour := store.Hourly.Start(time.Unix(5000*60, 0)).Unix()
	if n := got[figure{store.Hourly, hour, ledger.Debited}]; n != 10 || len(got) != 6 {
		t.Errorf("windows %v, want 10 in one", got)
	}
}

// An item that is reset every minute leaves no birth behind for longer than the stream may still deliver it.
func TestSourceForgetsBirths(t *testing.T) {
	t.Parallel()
	var s ledger.Source
	total := int64(0)
	sum := make(map[figure]int64)
	const late = 120
	for i := range int64(4 * late) {
		gather(sum, s.See([]ledger.Reading{reading(rand.Uint64()|1, i, 7)}, late))
		total += 7
	}
	if n := len(s.Append(nil)); n > 5000 {
		t.Errorf("%d bytes", n)
	}
	gather(sum, s.See([]ledger.Reading{reading(99, 10, 1000)}, late)) // from a day that is no longer delivered
	for k, v := range sum {
		if k.window == store.Monthly && k.figure == ledger.Debited {
			total -= v
		}
	}
	if total != 0 {
		t.Errorf("%d are missing", total)
	}
}

func TestSourcePeaks(t *testing.T) {
	t.Parallel()
	day := ledger.MinuteOf(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))
	var s ledger.Source
	got := make(map[figure]int64)
	for _, x := range []ledger.Reading{reading(1, day, 5), reading(1, day+1, 30), reading(1, day+90, 40), reading(1, day+25*60, 60)} {
		gather(got, s.See([]ledger.Reading{x}, ledger.Late))
	}
	at := func(w store.Window, minute int64) int64 {
		return got[figure{w, w.Start(time.Unix(minute*60, 0)).Unix(), ledger.Peak}]
	}
	if a, b, c, d := at(store.Hourly, day), at(store.Hourly, day+90), at(store.Daily, day), at(store.Monthly, day); a != 25 || b != 10 || c != 25 || d != 25 {
		t.Errorf("peaks %d, %d, %d, %d, want 25, 10, 25, 25", a, b, c, d)
	}
	if e := at(store.Daily, day+25*60); e != 20 {
		t.Errorf("the next day's peak is %d, want 20", e)
	}
}

// An item that is reset all the time keeps an account of bounded size, and loses nothing, even if each birth has limits of
// its own.
func TestSourceOfManyBirths(t *testing.T) {
	t.Parallel()
	for _, limits := range []int{1, 16} {
		var s ledger.Source
		var booked, debited int64
		for i := range int64(6000 / limits) {
			x := reading(uint64(i)*0x9e3779b97f4a7c15>>1|1, 30_000_000+i/3, 10)
			for n := range limits - 1 {
				x.Counts = append(x.Counts, ledger.Count{Limit: fmt.Sprintf("%0*d", store.MaxID, int(i)*limits+n), Figure: ledger.Debited, Value: 10})
			}
			debited += 10 * int64(limits)
			for range 2 { // redelivered
				for _, d := range s.See([]ledger.Reading{x}, ledger.Late) {
					if d.Window == store.Hourly && d.Figure == ledger.Debited {
						booked += d.Amount
					}
				}
			}
			if n := len(s.Append(nil)); n > 350<<10 {
				t.Fatalf("an account of %d bytes", n)
			}
		}
		if n := len(s.Append(nil)); limits == 1 && n > 64<<10 {
			t.Errorf("an account of %d bytes", n)
		}
		if booked != debited {
			t.Errorf("%d were booked of %d", booked, debited)
		}
	}
}
