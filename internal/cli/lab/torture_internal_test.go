package lab

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/torture"
)

// The output for a broken promise.
func TestTortureBroken(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, time.March, 1, 12, 0, 3, 0, time.UTC)
	rep := &torture.Report{
		Seed: 7, Seconds: 1.25, Processes: 3, Limiters: 3, Callers: 12, Totals: torture.Totals{Rounds: 4, Calls: 1200, Admitted: 100, Refused: 1090, Unknown: 10, Killed: 1},
		Checks: []torture.Check{
			{Name: "order", About: "one order", Cases: 98, Undecided: 1},
			{Name: "admitted", About: "no more", Cases: 12, Failure: "live of child-1: I1: over-admitted by 1 millitokens"},
			{Name: "once", About: "by one"},
		},
		History: "./weir-torture-1.jsonl",
		Excerpt: []*torture.Record{{
			Process: 2, Life: 1, Caller: 3, Op: torture.OpTake, Asked: at.UnixNano(), At: at, Result: torture.Admitted,
			Charges: []torture.Charge{{Entity: "child-1", Amounts: [2]int64{1500, 2000}}},
		}},
	}
	var out bytes.Buffer
	a := &kit.Run{Out: term.New(&out, nil), Output: "table"}
	Show(a, rep.Document())
	want := `verdict	a promise was broken
seed	7
callers	12 in 3 limiters of 3 processes
faults	-
calls	1200 in 4 rounds, 1.2 s
  admitted	100
  refused	1090
  in doubt	10, because the answer was lost
killed	1 process

CHECK	PROMISE	CASES	VERDICT
order	one order	98	kept; 1 undecided
admitted	no more	12	BROKEN: live of child-1: I1: over-admitted by 1 millitokens
once	by one	0	not reached

the last calls involved; all calls of the round are in ./weir-torture-1.jsonl:
  03.000000 process 2.1 caller 3: take child-1 live 1.5 ledger 2 → admitted at 03.000000000
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
