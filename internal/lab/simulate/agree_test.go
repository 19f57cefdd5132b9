package simulate_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/simulate"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// TestAgrees checks that the real driver, on DynamoDB in memory, in virtual time, does what the model predicts.
func TestAgrees(t *testing.T) {
	t.Parallel()
	perSecond := func(n int64) weir.Limit { return weir.PerSecond("rps", n) }
	for _, tt := range []struct {
		name string
		cfg  simulate.Config
		// How far off the model may be: calls per decision as a share, admissions as a share. If that is more than 0.05, no
		// two runs of the driver are alike, nor of the model with different seeds: the driver is compared with several.
		calls, admitted float64
	}{
		{"alone", simulate.Config{Limit: perSecond(1000), Processes: 1, Rate: 500, For: 5 * time.Second}, 0.05, 0.01},
		{"coalesced", simulate.Config{Limit: perSecond(20_000), Processes: 2, Rate: 5000, For: 2 * time.Second}, 0.05, 0.01},
		{"a tenth", simulate.Config{Limit: perSecond(1000), Processes: 50, Rate: 100, For: 20 * time.Second, MaxShards: 1}, 0.05, 0.01},
		{"two thirds", simulate.Config{Limit: perSecond(1000), Processes: 50, Rate: 600, For: 2 * time.Second, MaxShards: 1}, 0.05, 0.01},
		{"nearly all", simulate.Config{Limit: perSecond(1000), Processes: 50, Rate: 950, For: 2 * time.Second, MaxShards: 1}, 0.05, 0.01},
		{"too much", simulate.Config{Limit: perSecond(200), Processes: 20, Rate: 600, For: 5 * time.Second, MaxShards: 1}, 0.05, 0.02},
		{"refused", simulate.Config{Limit: weir.PerMinute("rpm", 30), Processes: 10, Rate: 200, For: 20 * time.Second}, 0.05, 0.05},
		{"asked anew", simulate.Config{Limit: weir.PerMinute("rpm", 30), Processes: 10, Rate: 200, For: 10 * time.Second, Hold: -1}, 0.05, 0.05},
		{"many buckets", simulate.Config{Limit: perSecond(10), Processes: 10, Entities: 100, Rate: 500, For: 5 * time.Second}, 0.05, 0.01},
		{"uneven", simulate.Config{Limit: perSecond(20), Processes: 10, Entities: 100, Zipf: 1.3, Rate: 500, For: 5 * time.Second}, 0.05, 0.01},
		{"errors", simulate.Config{Limit: perSecond(1000), Processes: 20, Rate: 400, For: 5 * time.Second, MaxShards: 1, Errors: 0.05}, 0.05, 0.01},
		{"lost answers", simulate.Config{Limit: perSecond(300), Processes: 20, Rate: 400, For: 5 * time.Second, MaxShards: 1, Lost: 0.05}, 0.05, 0.03},
		{"throttled", simulate.Config{Limit: perSecond(5000), Processes: 50, Rate: 600, For: 6 * time.Second, Capacity: 300, MaxShards: 8}, 0.20, 0.03},
		{"shared, too much", simulate.Config{Limit: perSecond(500), Processes: 3, Rate: 1500, For: 4 * time.Second, MaxShards: 1}, 0.30, 0.15},
		{"clocks apart", simulate.Config{Limit: perSecond(300), Processes: 20, Rate: 400, For: 5 * time.Second, MaxShards: 1, ClockSkew: 200 * time.Millisecond}, 0.05, 0.03},
		{"split", simulate.Config{Limit: perSecond(5000), Processes: 20, Rate: 1200, For: 4 * time.Second, MaxShards: 8}, 0.05, 0.01},
		{"split, too much", simulate.Config{Limit: perSecond(600), Processes: 20, Rate: 1200, For: 4 * time.Second, MaxShards: 8}, 0.05, 0.02},
		{"split, throttled", simulate.Config{Limit: perSecond(400), Processes: 40, Rate: 1200, For: 3 * time.Second, Capacity: 400, MaxShards: 16}, 0.30, 0.05},
		{"newcomers", simulate.Config{Limit: perSecond(2000), Processes: 2000, Rate: 300, For: 8 * time.Second, Capacity: 200, MaxShards: 4}, 0.15, 0.01},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if raced.On && tt.cfg.Rate > 300 {
				t.Skip("the driver's own tests look for races")
			}
			tt.cfg.Seed, tt.cfg.OnUnavailable = 1, simulate.Deny
			if tt.cfg.Capacity == 0 {
				tt.cfg.Capacity = 1e9
			}
			model := models(t, tt.cfg, 1)[0]
			runs := []*simulate.Report{model}
			if tt.calls > 0.05 {
				runs = models(t, tt.cfg, 5)
			}
			synctest.Test(t, func(t *testing.T) {
				asked, admitted, failed, calls := drive(t, tt.cfg)
				if int(asked) != model.Asked {
					t.Fatalf("the driver was asked %d times, the model %d times", asked, model.Asked)
				}
				share := func(n int64) float64 { return float64(n) / float64(asked) }
				t.Logf("of %d decisions, %d were admitted, %d failed, with %.4f calls each; by the model %d, %d, %.4f",
					asked, admitted, failed, share(calls), model.Admitted, model.Failed, model.PerAsked)
				off := beyond(runs, share(calls), func(m *simulate.Report) float64 { return m.PerAsked })
				if off > tt.calls*share(calls) && off > 0.005 {
					t.Errorf("%.4f calls per decision, by the model %.4f", share(calls), model.PerAsked)
				}
				off = beyond(runs, share(failed), func(m *simulate.Report) float64 { return float64(m.Failed) / float64(m.Asked) })
				if off > tt.calls {
					t.Errorf("%d failed, by the model %d", failed, model.Failed)
				}
				off = beyond(runs, share(admitted), func(m *simulate.Report) float64 { return float64(m.Admitted) / float64(m.Asked) })
				if off > tt.admitted*share(admitted) && off*float64(asked) > 3 {
					t.Errorf("%d admitted, by the model %d", admitted, model.Admitted)
				}
			})
		})
	}
}

// models runs the model of a scenario with different seeds.
func models(t *testing.T, cfg simulate.Config, seeds int) (runs []*simulate.Report) {
	t.Helper()
	for seed := range seeds {
		cfg.Seed = uint64(seed + 1)
		run, err := simulate.Run(t.Context(), cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	return runs
}

// beyond returns how far a figure of the driver is outside the range of the model's.
func beyond(runs []*simulate.Report, is float64, figure func(*simulate.Report) float64) float64 {
	least, most := figure(runs[0]), figure(runs[0])
	for _, r := range runs {
		least, most = min(least, figure(r)), max(most, figure(r))
	}
	return max(least-is, is-most, 0)
}

// drive makes stores of the driver do what a scenario contains.
func drive(t *testing.T, cfg simulate.Config) (asked, admitted, failed, calls int64) {
	t.Helper()
	if err := cfg.Check(); err != nil {
		t.Fatal(err)
	}
	fake := new(dynamotest.Fake)
	if _, err := dynamodb.Create(t.Context(), empty{fake}, "limits", dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(7, 7))
	draw := func() (nap time.Duration, x float64) {
		mu.Lock()
		defer mu.Unlock()
		mu, sigma := math.Log(float64(cfg.P50)), math.Log(float64(cfg.P99)/float64(cfg.P50))/2.3263
		return time.Duration(math.Exp(mu+sigma*dice.NormFloat64())) / 2, dice.Float64()
	}
	partitions := make(map[string]*partition)
	fake.Before = func(_ string, in any) error {
		nap, x := draw()
		time.Sleep(nap) // real time: none, all callers are in a bubble
		mu.Lock()
		defer mu.Unlock()
		if u, ok := in.(*sdk.UpdateItemInput); ok && x >= cfg.Errors {
			key := u.Key["PK"].(*types.AttributeValueMemberS).Value
			if partitions[key] == nil {
				partitions[key] = &partition{cfg.Capacity, time.Now()}
			}
			if !partitions[key].takes(cfg.Capacity) {
				mu.Unlock()
				time.Sleep(nap) // real time: none, all callers are in a bubble
				mu.Lock()
				return errHot
			}
		}
		if x < cfg.Errors {
			mu.Unlock()
			time.Sleep(nap) // real time: none, all callers are in a bubble
			mu.Lock()
			return errThrottled // certainly not applied
		}
		return nil
	}
	fake.After = func(string, any, any) error {
		nap, x := draw()
		time.Sleep(nap) // real time: none, all callers are in a bubble
		if x < cfg.Lost {
			return errFault // possibly applied
		}
		return nil
	}
	counted := func() (n int64) {
		for op, c := range fake.Calls() {
			if op == "UpdateItem" || op == "PutItem" {
				n += int64(c)
			}
		}
		return n
	}
	limit := &store.Limit{Name: "rps", Amount: cfg.Limit.Amount * 1000, Period: cfg.Limit.Period, Burst: cfg.Limit.Burst * 1000}
	begun, at := time.Now(), time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	clocks := rand.New(rand.NewPCG(cfg.Seed, 2)) // the same as the model's
	stores := make([]*dynamodb.Store, cfg.Processes)
	for i := range stores {
		skew := time.Duration(0)
		if cfg.ClockSkew > 0 {
			skew = time.Duration(clocks.Int64N(2*int64(cfg.ClockSkew)+1)) - cfg.ClockSkew
		}
		s, err := dynamodb.New(dynamodb.Config{
			Client: fake, Table: "limits", MaxShards: cfg.MaxShards, RejectionTTL: cfg.Hold,
			Now: func() time.Time { return at.Add(time.Since(begun) + skew) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores[i] = s
	}
	before := counted()
	arrivals := rand.New(rand.NewPCG(1, 1))
	var zipf *rand.Zipf
	if cfg.Zipf > 0 {
		zipf = rand.NewZipf(arrivals, cfg.Zipf, 1, uint64(cfg.Entities-1))
	}
	var yes, late atomic.Int64
	var wg sync.WaitGroup
	for next := begun; ; {
		next = next.Add(time.Duration(arrivals.ExpFloat64() / cfg.Rate * 1e9))
		if next.Sub(begun) > cfg.For {
			break
		}
		time.Sleep(time.Until(next)) // real time: none, all callers are in a bubble
		s, id := stores[arrivals.IntN(len(stores))], 0
		switch { // in the order in which the model draws, so that both get the same requests
		case zipf != nil:
			id = int(zipf.Uint64())
		case cfg.Entities > 1:
			id = arrivals.IntN(cfg.Entities)
		}
		asked++
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), cfg.Within)
			defer cancel()
			out, err := s.Take(ctx, store.Take{Debits: []store.Debit{{
				Bucket:  store.Bucket{Namespace: "n", Entity: string(rune('a' + id)), Resource: "api"},
				Charges: []store.Charge{{Limit: limit, Amount: cfg.Tokens * 1000}},
			}}})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			switch {
			case err != nil:
				late.Add(1)
			case out.Allowed:
				yes.Add(1)
			}
		})
	}
	wg.Wait()
	return asked, yes.Load(), late.Load(), counted() - before
}

// empty is a fake on which a table can be created: a scan finds nothing.
type empty struct{ *dynamotest.Fake }

func (empty) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

var (
	errFault     = &types.InternalServerError{}
	errThrottled = &types.ThrottlingException{}
	errHot       = &types.ThrottlingException{ThrottlingReasons: []types.ThrottlingReason{{Reason: aws.String("TableWriteKeyRangeThroughputExceeded")}}}
)

// partition accepts a limited number of writes a second.
type partition struct {
	units float64
	at    time.Time
}

func (p *partition) takes(capacity float64) bool {
	p.units = min(capacity, p.units+time.Since(p.at).Seconds()*capacity)
	p.at = time.Now()
	if p.units < 1 {
		return false
	}
	p.units--
	return true
}
