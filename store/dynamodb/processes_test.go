package dynamodb_test

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/faultproxy"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest"
)

// long reports whether there is time for long tests.
func long(t *testing.T) bool {
	return os.Getenv("WEIR_TORTURE") != "" && storetest.TortureTime(t) >= time.Minute
}

// brief reports whether there is not even time for all tests, because of the race detector.
func brief(t *testing.T) bool { return raced.On && !long(t) }

// unraced skips tests that the race detector makes slow and in which it would find nothing, because only one goroutine
// runs at a time or the same is done elsewhere. make test runs them without the detector.
func unraced(t *testing.T) {
	t.Helper()
	if brief(t) {
		t.Skip("takes long with the race detector")
	}
}

// faults returns rules by which each kind of fault occurs in 5 % of the calls.
func faults() (rules []faultproxy.Rule) {
	for _, kind := range []faultproxy.Kind{
		faultproxy.Delay, faultproxy.DropBefore, faultproxy.DropAfter, faultproxy.InternalError, faultproxy.Throttling,
		faultproxy.Throughput, faultproxy.Conflict, faultproxy.Unprocessed,
	} {
		rules = append(rules, faultproxy.Rule{Kind: kind, Probability: 0.05, Delay: 20 * time.Millisecond})
	}
	return rules
}

// TestProcesses checks that 8 processes of 16 callers each stay within a limit of which they ask at least twice as much.
//
//nolint:paralleltest // it loads the machine, and measures what is admitted in a time
func TestProcesses(t *testing.T) {
	endpoint := dynamotest.FreshEngine(t)
	workers := hire(t, 8)
	client := dynamotest.Client(t, endpoint)
	table := dynamotest.Table(t)
	if _, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                                  string
		shards, children                      int
		prefetch, faults, skew, changes, more bool // more: the bucket is split meanwhile
		returns, ample                        bool // ample: nothing is refused, and so nothing undone
		quick                                 bool // runs also with the race detector
	}{
		{name: "one bucket", shards: 1, quick: true},
		{name: "one bucket with prefetch", shards: 1, prefetch: true},
		{name: "4 shards", shards: 4},
		{name: "4 shards with prefetch", shards: 4, prefetch: true},
		{name: "a parent of 50", shards: 1, children: 50},
		{name: "a parent of 50 with prefetch", shards: 1, children: 50, prefetch: true},
		{name: "limits change", shards: 1, changes: true},
		{name: "limits of 4 shards change, with prefetch", shards: 4, changes: true, prefetch: true},
		{name: "split meanwhile", shards: 1, more: true, quick: true},
		{name: "split meanwhile with prefetch", shards: 1, more: true, prefetch: true},
		{name: "faults", shards: 1, faults: true},
		{name: "faults on 4 shards", shards: 4, faults: true, prefetch: true, quick: true},
		{name: "faults on a parent of 50", shards: 1, children: 50, faults: true},
		{name: "answers are lost, with returns, and enough for all", shards: 1, faults: true, returns: true, ample: true},
		{name: "faults on 4 shards, with returns and prefetch", shards: 4, prefetch: true, faults: true, returns: true, more: true},
		{name: "skew", shards: 1, skew: true},
		{name: "skew on 4 shards, split further, with faults", shards: 4, skew: true, faults: true, more: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if brief(t) && !tt.quick {
				t.Skip("takes long with the race detector")
			}
			b := bkt(fmt.Sprint("parent-", t.Name()))
			versions := []*store.Limit{per("tpm", 600, time.Second, 600)}
			if tt.ample {
				versions[0] = per("tpm", 1_000_000, time.Second, 1_000_000)
			}
			if tt.changes {
				versions = append(versions, per("tpm", 300, time.Second, 300), per("tpm", 600, time.Second, 400), per("tpm", 500, time.Second, 600))
			}
			s, err := dynamodb.New(dynamodb.Config{Client: client, Table: table, CallTimeout: patient})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			st := &stage{TB: t}
			st.take(s, charge(b, versions[0], 0))
			if _, err := s.Split(t.Context(), b, tt.shards); err != nil {
				t.Fatal(err)
			}
			lasts := 2500 * time.Millisecond
			if long(t) {
				lasts = 20 * time.Second
			}
			o := order{
				Endpoint: endpoint, Table: table, Parent: b, Versions: versions, Prefetch: tt.prefetch, Patient: !tt.faults, Returns: tt.returns,
				Child: per("tpm", 1_000_000, time.Second, 1_000_000), Start: time.Now().Add(200 * time.Millisecond),
			}
			o.End = o.Start.Add(lasts)
			for i := range tt.children {
				o.Children = append(o.Children, bkt(fmt.Sprint("child-", i, t.Name())))
			}
			if tt.faults {
				rules := faults()
				if tt.ample { // so that a write whose answer is lost is the only reason for doubt, and for a repetition
					rules = []faultproxy.Rule{{Kind: faultproxy.DropAfter, Probability: 0.1}}
				}
				o.Endpoint = faultproxy.New(t, endpoint, faultproxy.Config{Seed: 1, Rules: rules}).URL
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for k := 1; tt.more && k <= 2; k++ {
					time.Sleep(time.Until(o.Start.Add(time.Duration(k) * lasts / 3))) // real time: in the middle of the run
					if _, err := s.Split(t.Context(), b, tt.shards<<k); err != nil {
						t.Error(err)
					}
				}
			}()
			sum, err := carryOut(workers, func(i int) order {
				o := o
				if tt.skew {
					o.Skew = time.Duration(i-4) * 4 * time.Second / 7
					o.Skew = max(-2*time.Second, min(o.Skew, 2*time.Second))
				}
				return o
			})
			<-done
			if err != nil {
				t.Fatal(err)
			}
			if sum.Errors > 0 && !tt.faults {
				t.Errorf("%d errors, the first: %s", sum.Errors, sum.First)
			}
			snap, err := s.Peek(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			l := snap.States[0].Limits[0]
			net := l.Debited - l.Returned
			first, last := o.Start, snap.States[0].At
			if tt.skew {
				first = first.Add(-2 * time.Second)
			}
			most := int64(0)
			for _, v := range versions {
				p := clock.Params{Amount: v.Amount, Period: int64(v.Period), Burst: v.Burst}
				issued := p.Clock(clock.Nanos(last)) - p.Clock(clock.Nanos(first))
				if len(versions) > 1 {
					issued += int64(len(versions) * tt.shards) // a millitoken for each change of an item, rounded down
				}
				most = max(most, v.Burst+issued)
			}
			p := clock.Params{Amount: l.Limit.Amount, Period: int64(l.Limit.Period)}
			due := most - p.Clock(clock.Nanos(last)) + p.Clock(clock.Nanos(o.End)) // what ends later counts, too
			t.Logf("%.4f of what is allowed at most, %.4f of what is due until the end; %d shards, %d errors",
				float64(net)/float64(most), float64(sum.Admitted)/float64(due), s.Shards(b), sum.Errors)
			if held := sum.Admitted - sum.Returned - sum.Doubtful; held > net {
				t.Errorf("%d admitted, %d given back, but only %d debited and not returned", sum.Admitted, sum.Returned+sum.Doubtful, net)
			}
			if tt.ample && (l.Returned < sum.Returned || l.Returned > sum.Returned+sum.Doubtful) {
				t.Errorf("%d returned, and %d without an answer: counted as %d", sum.Returned, sum.Doubtful, l.Returned)
			}
			if tt.returns && sum.Returned < sum.Admitted/8 {
				t.Errorf("%d returned of %d admitted", sum.Returned, sum.Admitted)
			}
			if net > most {
				t.Errorf("%d debited and not returned, at most %d", net, most)
			}
			if calm := !tt.faults && !tt.skew && !tt.changes && !tt.more; calm {
				// An undo is tried three times, and leaves tokens debited if others write to the item each time: the slower
				// the calls, the more often. With prefetch, that concerns what was debited ahead of a full burst, too: each
				// process takes a tenth of what the others have left. Later there is nothing left to take ahead.
				kept := 0.9
				if tt.prefetch {
					kept -= (1 - math.Pow(0.9, 8)) * float64(versions[0].Burst) / float64(most)
				}
				if float64(sum.Admitted) < kept*float64(net) {
					t.Errorf("%d admitted of %d debited and not returned; want %.2f", sum.Admitted, net, kept)
				}
				if !raced.On && float64(sum.Admitted) < 0.5*float64(due) { // 0.99 if the machine has time
					t.Errorf("%d admitted, %.4f of what is allowed; want 0.5", sum.Admitted, float64(sum.Admitted)/float64(due))
				}
			}
			if tt.more && s.Shards(b) <= tt.shards {
				t.Error("it was not split")
			}
		})
	}
}
