package load_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/traffictest"
	"github.com/weirlimits/weir/store/dynamodb"
)

// unscanned is a fake on which a table can be created: a scan finds nothing.
type unscanned struct{ *dynamotest.Fake }

func (unscanned) Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	return new(sdk.ScanOutput), nil
}

// TestTable checks that a report's figures for a table equal what the table was charged: one write per decision if each
// entity has its own bucket, one for all waiting callers if many use one bucket, and hardly any if all are refused.
func TestTable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		warm time.Duration // until all buckets are created, which costs twice as much
		most float64       // write units per decision
	}{
		"simple": {20 * time.Second, 1.01}, "cascade": {20 * time.Second, 2.01}, "hot-key": {time.Second, 0.3}, "reject-storm": {time.Second, 0.06},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fake := &dynamotest.Fake{Before: func(string, any) error { pass(5 * time.Millisecond); return nil }}
				_, err := dynamodb.Create(t.Context(), unscanned{fake}, "limits", dynamodb.CreateConfig{})
				must(t, err)
				st, err := dynamodb.New(dynamodb.Config{Client: fake, Table: "limits", Now: time.Now})
				must(t, err)
				var meter load.Meter
				lim, err := weir.New(weir.Config{Store: st, Observer: meter.Observer()})
				must(t, err)
				defer func() { must(t, lim.Close()) }()
				warm := traffic.Span(tt.warm)
				p := traffictest.Plan(t, traffictest.Named(t, name), traffic.Settings{Seed: 1, For: traffic.Span(4 * time.Second), WarmUp: &warm})
				ns := load.Scratch(name)
				must(t, load.SetUp(t.Context(), p, lim, ns))
				var charged []float64
				tally, err := load.Run(t.Context(), p, load.Library{Limiter: lim.In(ns)}, load.Options{Measures: func() map[string]float64 {
					charged = append(charged, fake.Capacity().Write)
					return meter.Measures(st)
				}})
				must(t, err)
				r := load.NewReport(p, tally)
				wcu, units := r.Store["wcu"], charged[1]-charged[0]
				if r.Calls < 100 || r.Failed > 0 || r.Store["calls"] != wcu {
					t.Errorf("%d calls, %d failed, store: %+v", r.Calls, r.Failed, r.Store)
				}
				if math.Abs(wcu.Total-units) > 0.01*units || wcu.Each > tt.most || wcu.Each < 0.4*tt.most {
					t.Errorf("%g write units, %.3f per decision; the table was charged %g", wcu.Total, wcu.Each, units)
				}
			})
		})
	}
}
