package plan_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

// now is the time of all plans: 1,000 s after the epoch, when the clock of a token a second has issued 1,000 tokens.
var now = clock.Epoch.Add(1000 * time.Second)

// bench is a limit of a token a second with a burst of 60, and one item of a bucket that it limits.
type bench struct {
	*testing.T

	limit, faster, extra *store.Limit
	views                map[*store.Limit]*plan.View
	state                plan.State
	jobs                 []*plan.Job
	names                map[*plan.Job]string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	limit := store.Limit{Name: "rpm", Amount: 1000, Period: time.Second, Burst: 60_000}
	faster, extra := limit, limit
	faster.Amount, extra.Override, extra.Burst = 2000, true, 5000
	return &bench{T: t, limit: &limit, faster: &faster, extra: &extra, views: make(map[*store.Limit]*plan.View), names: make(map[*plan.Job]string)}
}

func (b *bench) view(l *store.Limit) *plan.View {
	b.Helper()
	if b.views[l] == nil {
		v, err := plan.NewView([]store.Charge{{Limit: l}})
		if err != nil {
			b.Fatal(err)
		}
		b.views[l] = v
	}
	return b.views[l]
}

// tokens reads a number of tokens as millitokens.
func tokens(b *bench, s string) int64 {
	b.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		b.Fatalf("%q: %v", s, err)
	}
	return 1000 * n
}

// item reads an item: "missing", "full" or "owes 20", with which the limit's level is 20 tokens above the clock.
// Counters follow, as in "debited 20 returned 3", and other facts, as in "frozen" and "of 2" (shards).
func (b *bench) item(text string) *plan.Item {
	b.Helper()
	if text == "missing" {
		return plan.Missing
	}
	l := plan.Limit{Name: "rpm", Params: clock.Params{Amount: 1000, Period: int64(time.Second), Burst: 60_000}}
	it := &plan.Item{Exists: true, ID: 7, At: clock.Nanos(now), Epoch: 5, Set: b.view(b.limit).Set, Shards: 1, Writes: 9}
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		number := func() int64 { i++; return tokens(b, words[i]) }
		switch words[i] {
		case "full":
		case "owes":
			l.Has, l.Level = true, 1_000_000+number()
		case "debited":
			l.Debited = number()
		case "returned":
			l.Returned = number()
		case "writes":
			it.Writes = number() / 1000
		case "id":
			it.ID = uint64(number() / 1000)
		case "frozen":
			it.Frozen = true
		case "of":
			it.Shards = int(number() / 1000)
		default:
			b.Fatalf("item %q: %q", text, words[i])
		}
	}
	it.Limits = []plan.Limit{l}
	return it
}

// know reads a state: an item as in item, or "nothing", and what else is known, after a semicolon.
func (b *bench) know(text string) {
	b.Helper()
	what, facts, _ := strings.Cut(text, "; ")
	b.state = plan.State{
		On: plan.Place{N: 1}, Sent: 3, Latest: math.MinInt64,
		Rules: &plan.Rules{Guard: 0.01, RejectionTTL: time.Second},
	}
	if what != "nothing" {
		b.state.Last, b.state.Shown, b.state.Wrote, b.state.Landed = b.item(what), 3, clock.Nanos(now), true
	}
	for fact := range strings.FieldsSeq(facts) {
		switch fact {
		case "fresh":
			b.state.Refused.At = now.Add(-time.Millisecond)
		case "missed":
			b.state.Misses = 3
		case "alone":
			b.state.Others.Alone = 32
		case "hot":
			b.state.Hot = true
		case "counts":
			b.state.Owed = plan.Counts{ID: 7, Takes: 2, Undone: 1}
		default:
			b.Fatalf("state %q: %q", text, fact)
		}
	}
}

// ask reads jobs: "take 5, settle -3, undo 4", and the like. A "^" marks a job that waited while the item was shown.
func (b *bench) ask(text string) {
	b.Helper()
	for name := range strings.SplitSeq(text, ", ") {
		what, amount, _ := strings.Cut(strings.TrimSuffix(name, "^"), " ")
		j := &plan.Job{View: b.view(b.limit), Epoch: 5, Arrival: plan.Arrival{Since: 3, Came: clock.Nanos(now)}, Counts: true}
		if strings.HasSuffix(name, "^") {
			j.Since = 2
		}
		if amount != "" {
			j.Amounts = []int64{tokens(b, amount)}
		}
		switch what {
		case "take":
		case "move":
			j.MayMove = true
		case "force":
			j.Forced = []bool{true}
		case "shadow":
			j.Shadow = []bool{true}
		case "newer", "older":
			j.View, j.Epoch = b.view(b.faster), map[string]uint64{"newer": 6, "older": 4}[what]
		case "extra":
			j.View = b.view(b.extra)
		case "ahead":
			j.Ahead, j.Counts = 0.5, false
		case "settle":
			j.Kind, j.Counts = plan.Settle, false
		case "forget":
			j.Kind, j.Counts = plan.Forget, false
		case "undo": // of a debit that left the item owing 20 tokens, 20 debited
			j.Kind = plan.Undo
			it := b.item("owes 20 debited 20")
			j.Proof = &plan.Proof{On: plan.Place{N: 1}, Item: it, Tops: []int64{it.Limits[0].Level}}
		default:
			b.Fatalf("job %q", name)
		}
		b.jobs, b.names[j] = append(b.jobs, j), name
	}
}

var verdicts = map[plan.Verdict]string{
	plan.Allowed: "allowed", plan.Refused: "refused", plan.Stale: "stale", plan.TooMany: "too many",
	plan.Overflow: "overflow", plan.Moved: "moved", plan.Again: "again", plan.Failed: "failed",
}

func whole(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'g', -1, 64) }

// show describes a plan: what is written, which jobs wait, and which are answered.
func (b *bench) show(w *plan.Write, later []*plan.Job) string {
	var out []string
	var names []string
	for _, e := range w.Entries {
		names = append(names, b.names[e.Job])
	}
	if w.Number > 0 {
		var text strings.Builder
		text.WriteString("write " + strings.Join(names, ", "))
		for _, p := range w.Totals {
			text.WriteString(": ")
			if p.Sum > 0 {
				text.WriteString("+" + whole(p.Sum))
			}
			if p.Back > 0 {
				text.WriteString("-" + whole(p.Back))
			}
			if p.Sum > 0 && p.Bound < p.Sum {
				text.WriteString(" forced")
			}
			if p.Sum > 0 && p.Form == plan.Running {
				text.WriteString(" running")
			}
			if p.Guard > 0 {
				text.WriteString(" guarded")
			}
		}
		if w.Upkeep != nil {
			text.WriteString(": upkeep")
		}
		if n := w.Owed.Takes - w.Owed.Undone; n > 0 {
			fmt.Fprintf(&text, " and %d counts", n)
		}
		out = append(out, text.String())
	}
	if len(later) > 0 {
		names = nil
		for _, j := range later {
			names = append(names, b.names[j])
		}
		out = append(out, "wait "+strings.Join(names, ", "))
	}
	return strings.Join(append(out, b.answers(w.Answers)...), "; ")
}

func (b *bench) answers(as []plan.Answer) (out []string) {
	for i := range as {
		text := b.names[as[i].Job] + " " + verdicts[as[i].Verdict]
		if as[i].Item != nil && as[i].Job.View != nil && as[i].Verdict == plan.Allowed {
			if level, ok := as[i].Level("rpm"); ok {
				text += " at " + whole(level-1_000_000)
			}
		}
		out = append(out, text)
	}
	return out
}

// TestPlan checks what a write carries, which jobs wait, and which are answered without one.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ know, ask, want string }{
		{"nothing", "take 5", "write take 5: +5"},
		{"missing", "take 5", "write take 5: +5"},
		{"full", "take 5, take 55", "write take 5, take 55: +60"},
		{"owes 20", "take 5", "write take 5: +5 running"},

		// As many as fit, in their order; one that does not fit waits, and delays none.
		{"owes 20; alone", "take 30, take 20, take 10", "write take 30, take 10: +40 running; wait take 20"},
		// Alone, to see the item, if what is known may be old; else refused.
		{"owes 50", "take 20", "write take 20: +20 running"},
		{"owes 50", "take 5, take 20", "write take 5: +5 running; wait take 20"},
		{"owes 50", "take 20, take 5", "write take 20: +20 running; wait take 5"},
		{"owes 50; fresh", "take 20, take 5", "write take 5: +5 running; take 20 refused"},
		{"owes 50", "take 20^, take 5", "write take 5: +5 running; take 20^ refused"},
		{"owes 20; missed", "take 30^, take 20^", "write take 30^: +30 running; take 20^ refused"},
		{"nothing", "take 61", "take 61 refused"}, // more than the burst
		{"owes 61; fresh", "take 0", "take 0 refused"},

		// Forced and shadow amounts are never refused.
		{"owes 50; fresh", "force 20", "write force 20: +20 forced running"},
		{"owes 50; fresh", "shadow 20, take 10", "write shadow 20, take 10: +10 running"},
		{"full", "force 6000000000000000", "force 6000000000000000 overflow"},

		// Settles. No limit's net falls below zero beside takes.
		{"owes 20", "settle -5", "write settle -5: -5"},
		{"owes 20", "take 10, settle -5", "write take 10, settle -5: +10-5 running"},
		{"owes 20", "take 3, settle -5", "write take 3: +3 running; wait settle -5"},
		{"owes 20", "settle -5, take 3", "write settle -5: -5; wait take 3"},
		{"owes 58; fresh", "settle -5, take 5", "write settle -5: -5; wait take 5"}, // for which it makes room
		{"owes 58", "settle 90", "write settle 90: +90 forced running"},
		{"full; fresh", "settle -5", "settle -5 allowed"}, // there is nothing to return to
		{"missing", "settle -5^", "settle -5^ allowed"},
		{"nothing", "settle -5", "write settle -5: -5"},

		// Undos make writes of their own, and return what stands.
		{"owes 20 debited 20", "undo 20", "write undo 20: -20"},
		{"owes 20 debited 20", "undo 5, undo 20", "write undo 5, undo 20: -20"},
		{"owes 20 debited 20", "take 5, undo 5", "write take 5: +5 running; wait undo 5"},
		{"owes 20 debited 20", "undo 5, take 5", "write undo 5: -5; wait take 5"},
		{"owes 35 debited 35", "undo 20", "write undo 20: -20"},
		{"owes 5 debited 20 returned 15", "undo 20", "write undo 20: -5"},
		{"owes 0 debited 20 returned 20", "undo 20", "undo 20 allowed at 0"},
		{"owes 35 debited 20", "undo 20", "undo 20 allowed at 35"}, // something else has moved the level
		{"owes 20 debited 10", "undo 20", "undo 20 allowed at 20"}, // the counters began anew
		{"owes 20 debited 20 id 8", "undo 20", "undo 20 allowed at 20"},
		{"missing", "undo 20", "undo 20 allowed"},

		// What is debited ahead.
		{"owes 20; alone", "take 5, ahead 10", "write take 5, ahead 10: +15 running"},
		{"owes 20; alone", "take 10, ahead 90", "write take 10, ahead 90: +25 running"}, // half of the 30 that are left
		{"owes 20; missed", "take 5, ahead 10", "write take 5: +5 running"},
		{"owes 20", "settle 5, ahead 10", "write settle 5: +5 forced running"},
		{"owes 20", "ahead 10", ""},

		// Other limits than those in force.
		{"owes 20", "newer 5, take 5", "write newer 5: upkeep; wait take 5"},
		{"owes 20", "take 5, newer 5", "write take 5: +5 running; wait newer 5"},
		{"owes 20; fresh", "older 5", "older 5 stale"},
		{"owes 20", "older 5", "write older 5: +5"},
		{"missing", "take 5, newer 5", "write take 5: +5; wait newer 5"},
		{"owes 20", "extra 3, extra 2, take 1", "write extra 3, extra 2, take 1: +5: +1 running"},

		{"owes 20", "take 5, forget", "write forget: upkeep; wait take 5"},
		{"owes 20; counts", "take 5", "write take 5: +5 running and 1 counts"},
		{"owes 20; counts", "settle -5", "write settle -5: -5"}, // it does not assert the birth

		// An outdated item, and one that was throttled.
		{"owes 20 of 2", "take 5, settle 2", "take 5 moved; settle 2 moved"},
		{"owes 20 frozen", "undo 20", "undo 20 allowed at 20"},
		{"owes 20; hot", "take 5, move 5", "write take 5: +5 running; move 5 moved"},
	} {
		t.Run(tt.know+": "+tt.ask, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.know(tt.know)
			b.ask(tt.ask)
			_, w, later := plan.Plan(b.state, b.jobs, now)
			if got := b.show(w, later); got != tt.want {
				t.Errorf("%s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestJudge checks what a write's answer means for its jobs, and what is remembered of it.
func TestJudge(t *testing.T) {
	t.Parallel()
	applied := func(it *plan.Item) plan.Got { return plan.Got{Item: it, Applied: true} }
	denied := func(it *plan.Item) plan.Got { return plan.Got{Item: it} }
	none := func(got plan.Got) func(*plan.Item) plan.Got { return func(*plan.Item) plan.Got { return got } }
	lost, down := none(plan.Got{Unknown: true, Repeat: true}), none(plan.Got{Repeat: true})
	final, hot := none(plan.Got{}), none(plan.Got{Repeat: true, Hot: true})
	for _, tt := range []struct {
		name, know, ask string
		got             func(*plan.Item) plan.Got
		item, want      string
	}{
		// Each job sees the level without what later ones debited.
		{"applied", "owes 20", "take 5, take 3, settle -2", applied, "owes 26", "take 5 allowed at 25, take 3 allowed at 28, settle -2 allowed at 26; misses 0"},
		{"applied", "owes 20 debited 20", "undo 20", applied, "owes 0", "undo 20 allowed at 0; misses 0"},
		{"applied", "owes 20", "newer 5", applied, "owes 20", "newer 5 again; misses 0"},
		{"applied", "owes 20", "forget", applied, "missing", "forget allowed; misses 0"},
		{"denied", "owes 20", "take 5, settle -2", denied, "owes 58", "take 5 again, settle -2 again; misses 1, denied"},
		{"denied", "owes 20; fresh", "settle -5", denied, "owes 58", "settle -5 again; misses 1, denied"},
		{"applied", "owes 50; fresh", "settle -5", applied, "owes 45", "settle -5 allowed at 45; misses 0"}, // forgets the refusal
		{"applied", "owes 50; fresh", "take 5", applied, "owes 55", "take 5 allowed at 55; misses 0, denied"},

		// Debits are repeated; what gives is not, once it may have been applied.
		{"lost", "owes 20", "take 5, settle -2, settle 4", lost, "", "take 5 again, settle -2 failed, settle 4 again; misses 0"},
		{"lost", "owes 20 debited 20", "undo 20", lost, "", "undo 20 failed; misses 0"},
		{"down", "owes 20", "take 5, settle -2", down, "", "take 5 again, settle -2 again; misses 0"},
		{"final", "owes 20", "take 5, settle -2", final, "", "take 5 failed, settle -2 failed; misses 0"},
		{"throttled", "owes 20", "take 5, move 5", hot, "", "take 5 again, move 5 moved; misses 0, hot"},

		{"down", "owes 20; counts", "take 5", down, "", "take 5 again; misses 0, counts 1"},
		{"lost", "owes 20; counts", "take 5", lost, "", "take 5 again; misses 0"}, // or they would be counted twice
	} {
		t.Run(tt.name+" "+tt.know+": "+tt.ask, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.know(tt.know)
			b.ask(tt.ask)
			var it *plan.Item
			if tt.item != "" {
				it = b.item(tt.item)
			}
			s, w, _ := plan.Plan(b.state, b.jobs, now)
			s, answers := plan.Judge(s, w, tt.got(it))
			out := fmt.Sprintf("%s; misses %d", strings.Join(b.answers(answers), ", "), s.Misses)
			if !s.Refused.At.IsZero() {
				out += ", denied"
			}
			if s.Hot {
				out += ", hot"
			}
			if n := s.Owed.Takes - s.Owed.Undone; n != 0 {
				out += fmt.Sprintf(", counts %d", n)
			}
			if out != tt.want {
				t.Errorf("%s\nwant %s", out, tt.want)
			}
		})
	}
}

// TestProof checks how much of a debit of 20 tokens is certain to lie between the clock and its top.
func TestProof(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		last  string
		after time.Duration
		want  int64
	}{
		{"owes 20 debited 20", 0, 20},
		{"owes 20 debited 20", 5 * time.Second, 15},
		{"owes 20 debited 20", time.Minute, 0},
		{"owes 50 debited 50", 0, 20},
		{"owes 14 debited 20 returned 6", 0, 14},
		{"owes 20 debited 20 writes 50", 0, 20},
		{"owes 20 debited 20 id 8", 0, 0},
		{"owes 20 debited 19", 0, 0},
		{"full debited 20", 0, 0},
		{"missing", 0, 0},
		{"owes 20 debited 20 of 2", 0, 0},
	} {
		b := newBench(t)
		it := b.item("owes 20 debited 20")
		p := &plan.Proof{On: plan.Place{N: 1}, Item: it, Tops: []int64{it.Limits[0].Level}}
		last := b.item(tt.last)
		got := p.Above(last, plan.Place{N: last.Shards}, b.view(b.limit), 0, clock.Nanos(now.Add(tt.after)))
		if got != 1000*tt.want {
			t.Errorf("%s after %v: %d, want %d tokens", tt.last, tt.after, got, tt.want)
		}
	}
}

// TestPlanKeepsOrder checks that jobs that wait keep their order, and that every job is written, waits or is answered.
func TestPlanKeepsOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.know("owes 20; alone")
	b.ask("take 30, take 20, settle -40, undo 20, take 70, take 10, newer 3, forget, take 9")
	all := b.jobs
	_, w, later := plan.Plan(b.state, slices.Clone(all), now)
	if got := len(w.Entries) + len(later) + len(w.Answers); got != len(all) {
		t.Errorf("%d of %d jobs", got, len(all))
	}
	at := -1
	for _, j := range later {
		if i := slices.Index(all, j); i < at {
			t.Errorf("%s is out of order", b.names[j])
		} else {
			at = i
		}
	}
}

// TestPause checks that writes without an answer are repeated after longer and longer pauses, up to a bound, until there
// is an answer, and writes whose condition failed only after several in a row.
func TestPause(t *testing.T) {
	t.Parallel()
	s := plan.State{On: plan.Place{N: 1}, Rules: new(plan.Rules)}
	w := &plan.Write{Entries: []plan.Entry{{Job: &plan.Job{}}}}
	throttled, denied, applied := plan.Got{Repeat: true, Hot: true}, plan.Got{Item: plan.Missing}, plan.Got{Item: plan.Missing, Applied: true}
	for i, step := range []struct {
		got  plan.Got
		want int64 // in milliseconds
	}{
		{throttled, 25},
		{throttled, 50},
		{throttled, 100},
		{throttled, 200},
		{throttled, 200},
		{denied, 0},
		{throttled, 25},
		{denied, 0},
		{denied, 3},
		{applied, 0},
		{throttled, 25},
	} {
		if s, _ = plan.Judge(s, w, step.got); s.Pause().Milliseconds() != step.want {
			t.Errorf("step %d: %v, want %d ms", i, s.Pause(), step.want)
		}
	}
}
