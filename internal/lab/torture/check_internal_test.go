package torture

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
)

// If a take's buckets are debited one by one, the take reports the time of the last debit. Its parent may have been
// debited earlier, by up to the duration of the call. So the clock may have issued that much more by the last take, and no
// more.
func TestAdmittedOneByOne(t *testing.T) {
	t.Parallel()
	began := time.Date(2024, time.March, 1, 0, 0, 0, 0, time.UTC)
	l := parentLimits[live]
	take := func(after, took time.Duration, amount int64) *Record {
		return &Record{
			Op: OpTake, Result: Admitted, At: began.Add(after), Asked: 1, Told: 1 + int64(took),
			Charges: []Charge{{Entity: parent, Amounts: [2]int64{live: amount}}},
		}
	}
	judge := func(atomic bool, second int64) *failure {
		state := func(debited, level int64) []store.State {
			at := func(i int, debited, level int64) store.LimitState {
				return store.LimitState{Limit: parentLimits[i], Level: level, Debited: debited}
			}
			return []store.State{{Bucket: store.Bucket{Entity: parent}, ID: 1, Limits: []store.LimitState{at(live, debited, level), at(ledger, 0, 0)}}}
		}
		ev := &evidence{
			records: []*Record{take(10*time.Millisecond, 10*time.Millisecond, l.Burst), take(20*time.Millisecond, time.Millisecond, second)},
			before:  state(0, 0), at: began, after: state(l.Burst+second, 1<<60), end: began.Add(time.Second), atomic: atomic,
		}
		f := ev.spent(func(int, int) {}, func(int) {})
		if f != nil && f.check != checkAdmitted {
			return nil
		}
		return f
	}
	const each = 2000 // issued in 10 ms
	for _, c := range []struct {
		atomic bool
		second int64
		want   bool
	}{
		{true, each, true},
		{true, each + 1, false},
		{false, 2 * each, true},
		{false, 2*each + 1, false},
	} {
		if f := judge(c.atomic, c.second); (f == nil) != c.want {
			t.Errorf("atomic %t, %d millitokens beside the burst: %+v", c.atomic, c.second, f)
		}
	}
}

// A store that decides in one step returns a take whose caller has left, except for what each limit issued since. That is
// all that a parent may be debited more than its children.
func TestParentsOfLeft(t *testing.T) {
	t.Parallel()
	began := time.Date(2024, time.March, 1, 0, 0, 0, 0, time.UTC)
	const debited = 10_000
	state := func(entity string, returned int64) store.State {
		of := limitsOf(entity)
		return store.State{Bucket: store.Bucket{Entity: entity}, Limits: []store.LimitState{
			{Limit: of[live], Debited: debited, Returned: returned}, {Limit: of[ledger]},
		}}
	}
	for _, c := range []struct {
		result          Result
		took            time.Duration
		returned, child int64
		want            bool
	}{
		{Unknown, time.Millisecond, debited - 200, debited, true}, // the parent's limit issues 200 millitokens in 1 ms
		{Unknown, time.Millisecond, debited - 201, debited, false},
		{Unknown, time.Second, 0, debited, true},
		{Unknown, time.Second, debited, debited - 1, false},
		{Refused, time.Millisecond, debited - 1, debited, false},
	} {
		amounts := [2]int64{live: debited}
		ev := &evidence{
			records: []*Record{{Op: OpTake, Result: c.result, At: began, Told: 1, Charges: []Charge{{Entity: child(0), Amounts: amounts}, {Entity: parent, Amounts: amounts}}}},
			before:  []store.State{state(child(0), debited), state(parent, debited)}, at: began,
			after: []store.State{state(child(0), c.child), state(parent, c.returned)}, end: began.Add(c.took), atomic: true,
		}
		if f := ev.parents(func(int, int) {}, func(int) {}, nil); (f == nil) != c.want {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}

// A neighbour whose call did not reach a store that answers is reported; one whose call failed is not. Only calls while
// others are kept from the store are cases.
func TestApart(t *testing.T) {
	t.Parallel()
	for result, broken := range map[Result]bool{Admitted: false, Refused: false, Unknown: false, "": false, KeptOut: true} {
		ev := &evidence{records: []*Record{
			{Op: OpTake, Result: KeptOut, Charges: []Charge{{Entity: parent}}},
			{Op: OpTake, Result: Admitted, Charges: []Charge{{Entity: neighbour}}},
			{Op: OpBeside, Result: result, Err: "not called", Charges: []Charge{{Entity: neighbour}}},
		}}
		cases := 0
		if f := ev.apart(func(_, n int) { cases += n }); (f != nil) != broken || cases != 1 {
			t.Errorf("%q: %v in %d cases", result, f, cases)
		}
	}
}
