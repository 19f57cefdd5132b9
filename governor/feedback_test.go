package governor_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/governor"
)

// throttling is the body of an error, with reasons of the form REASON RESOURCE.
func throttling(code string, reasons ...string) string {
	var all []string
	for _, r := range reasons {
		reason, resource, _ := strings.Cut(r, " ")
		all = append(all, fmt.Sprintf(`{"reason":%q,"resource":"arn:aws:dynamodb:eu-west-1:123456789012:table/%s"}`, reason, resource))
	}
	field := "ThrottlingReasons"
	if code == "ThrottlingException" {
		field = "throttlingReasons"
	}
	return fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"slow down",%q:[%s]}`, code, field, strings.Join(all, ","))
}

func TestThrottlingLowersTheBudgetConcerned(t *testing.T) {
	t.Parallel()
	limits := governor.Limits{ReadUnits: 100, WriteUnits: 100, Indexes: map[string]governor.Limits{"x": {ReadUnits: 100, WriteUnits: 100}}}
	for _, tt := range []struct {
		name    string
		body    string
		lowered []string // TABLE/INDEX DIRECTION
		hot     bool
	}{
		{"no reason", throttling("ProvisionedThroughputExceededException"), []string{"t/ write", "t/x write"}, false},
		{"table", throttling("ProvisionedThroughputExceededException", "TableWriteProvisionedThroughputExceeded t"), []string{"t/ write"}, false},
		{"on-demand maximum", throttling("ThrottlingException", "TableWriteMaxOnDemandThroughputExceeded t"), []string{"t/ write"}, false},
		{"index", throttling("ProvisionedThroughputExceededException", "IndexWriteProvisionedThroughputExceeded t/index/x"), []string{"t/x write"}, false},
		{"index without a budget", throttling("ProvisionedThroughputExceededException", "IndexWriteProvisionedThroughputExceeded t/index/y"), []string{"t/ write"}, false},
		{"account", throttling("RequestLimitExceeded", "TableWriteAccountLimitExceeded t"), []string{"/ write"}, false},
		{"hot keys", throttling("ThrottlingException", "TableWriteKeyRangeThroughputExceeded t"), nil, true},
		{"hot keys and the table", throttling("ThrottlingException", "TableWriteKeyRangeThroughputExceeded t", "TableWriteProvisionedThroughputExceeded t"), []string{"t/ write"}, true},
		{"another table", throttling("ThrottlingException", "TableReadProvisionedThroughputExceeded u"), []string{"u/ read"}, false},
		{"mistake", invalid, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &stub{answer: answering(400, tt.body)}
				g := mustNew(t, governor.Config{ReadUnits: 500, WriteUnits: 500, Tables: map[string]governor.Limits{"t": limits}})
				if err := put(t.Context(), s.client(g)); err == nil {
					t.Fatal("no error")
				}
				var lowered []string
				hot := false
				for _, b := range g.Status().Budgets {
					if b.Rate < b.Limit {
						lowered = append(lowered, fmt.Sprintf("%s/%s %s", b.Table, b.Index, b.Direction))
					}
					hot = hot || b.HotKeys > 0
				}
				if fmt.Sprint(lowered) != fmt.Sprint(tt.lowered) || hot != tt.hot {
					t.Errorf("lowered %q, hot keys %v", lowered, hot)
				}
			})
		})
	}
}

// Every attempt that the SDK makes is observed, and the call is settled once.
func TestRetriesAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		s.answer = func(request) (int, string) {
			if len(s.calls) < 3 {
				return 400, throttling("ProvisionedThroughputExceededException")
			}
			return 200, consumed("1")
		}
		g := mustNew(t, governor.Config{ReadUnits: 100, WriteUnits: 100})
		if err := put(t.Context(), s.client(g)); err != nil {
			t.Fatal(err)
		}
		b := budgetOf(g, "t", "", governor.Write)
		if b.Throttles != 2 || b.Consumed != 1 || len(s.calls) != 3 {
			t.Errorf("%d throttles, %v consumed, %d attempts", b.Throttles, b.Consumed, len(s.calls))
		}
		if all := budgetOf(g, "", "", governor.Write); all.Rate != all.Limit || all.Consumed != 1 {
			t.Errorf("one table's throttling lowered the account: %+v", all)
		}
	})
}

func TestUnprocessedItemsAreThrottling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{answer: answering(200, `{"UnprocessedItems":{"t":[{"PutRequest":{"Item":{"pk":{"S":"a"}}}}]},"ConsumedCapacity":[{"TableName":"t","CapacityUnits":1},{"TableName":"u","CapacityUnits":1}]}`)}
		g := mustNew(t, governor.Config{ReadUnits: 100, WriteUnits: 100})
		write := []types.WriteRequest{{PutRequest: &types.PutRequest{Item: key}}}
		if _, err := s.client(g).BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{"t": append(write, write...), "u": write},
		}); err != nil {
			t.Fatal(err)
		}
		if b := budgetOf(g, "t", "", governor.Write); b.Throttles != 1 || b.Rate >= b.Limit {
			t.Errorf("the table: %+v", b)
		}
		if b := budgetOf(g, "u", "", governor.Write); b.Throttles != 0 {
			t.Errorf("the other: %+v", b)
		}
		if b := budgetOf(g, "", "", governor.Write); b.Consumed != 2 {
			t.Errorf("%v consumed", b.Consumed)
		}
		s.answer = answering(200, `{"UnprocessedKeys":{"t":{"Keys":[{"pk":{"S":"a"}}]}}}`)
		if _, err := s.client(g).BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{
			RequestItems: map[string]types.KeysAndAttributes{"t": {Keys: []map[string]types.AttributeValue{key}}},
		}); err != nil {
			t.Fatal(err)
		}
		if b := budgetOf(g, "t", "", governor.Read); b.Throttles != 1 {
			t.Errorf("reads: %+v", b)
		}
	})
}

// A table that sustains less than the budget: calls settle near its capacity, and rise again when the capacity grows.
func TestRateFindsWhatTheTableBears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bears := 20.0
		left, last := bears, time.Now()
		s := &stub{took: time.Millisecond}
		refused, done := 0, 0
		s.answer = func(request) (int, string) { // one call at a time
			left = min(bears, left+bears*time.Since(last).Seconds())
			last = time.Now()
			if left < 1 {
				refused++
				return 400, throttling("ProvisionedThroughputExceededException", "TableWriteProvisionedThroughputExceeded t")
			}
			left--
			done++
			return 200, consumed("1")
		}
		g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 100})
		c := s.client(g)
		for began := time.Now(); time.Since(began) < 60*time.Second; {
			_ = put(t.Context(), c) // some are throttled until the end
		}
		if rate := float64(done) / 60; rate < 16 || float64(refused)/float64(done) > 0.05 {
			t.Errorf("%.1f of 20 a second were used, %d calls refused, %d done", rate, refused, done)
		}
		bears, left = 200, 200
		for began := time.Now(); time.Since(began) < 60*time.Second; {
			if err := put(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if b := budgetOf(g, "t", "", governor.Write); b.Rate != 100 || b.Second < 95 {
			t.Errorf("a minute later the rate is %v, and %v are used", b.Rate, b.Second)
		}
	})
}
