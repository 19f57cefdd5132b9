package governor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/governor"
)

var key = map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "a"}}

// consumed is a response that reports units of table t.
func consumed(units string) string {
	return `{"ConsumedCapacity":{"TableName":"t","CapacityUnits":` + units + `}}`
}

func TestOtherOperationsPassUntouched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{answer: answering(200, `{}`)}
		g := mustNew(t, governor.Config{ReadUnits: 1, WriteUnits: 1})
		c, began := s.client(g), time.Now()
		for range 20 { // far above the budgets
			if _, err := c.DescribeTable(t.Context(), &dynamodb.DescribeTableInput{TableName: aws.String("t")}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
				TableName: aws.String("t"), TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("x"), Enabled: aws.Bool(true)},
			}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("they took %v", d)
		}
		for _, r := range s.calls {
			if _, ok := r.body["ReturnConsumedCapacity"]; ok {
				t.Errorf("%s was asked for its capacity", r.op)
			}
		}
	})
}

func TestInputsAreCopied(t *testing.T) {
	t.Parallel()
	split := governor.Config{Tables: map[string]governor.Limits{"t": {ReadUnits: 100, WriteUnits: 100, Indexes: map[string]governor.Limits{"byUser": {ReadUnits: 100, WriteUnits: 100}}}}}
	whole := governor.Config{ReadUnits: 100, WriteUnits: 100}
	for _, tt := range []struct {
		name  string
		cfg   governor.Config
		asked types.ReturnConsumedCapacity
		want  string
	}{
		{"nothing", whole, "", "TOTAL"},
		{"none", whole, types.ReturnConsumedCapacityNone, "TOTAL"},
		{"total", whole, types.ReturnConsumedCapacityTotal, "TOTAL"},
		{"indexes", whole, types.ReturnConsumedCapacityIndexes, "INDEXES"},
		{"nothing, of indexes with budgets", split, "", "INDEXES"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &stub{answer: answering(200, consumed("1"))}
			in := &dynamodb.PutItemInput{TableName: aws.String("t"), Item: key, ReturnConsumedCapacity: tt.asked}
			if _, err := s.client(mustNew(t, tt.cfg)).PutItem(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			if got := s.calls[0].body["ReturnConsumedCapacity"]; got != tt.want {
				t.Errorf("asked for %v, want %v", got, tt.want)
			}
			if in.ReturnConsumedCapacity != tt.asked {
				t.Errorf("the caller's input became %v", in.ReturnConsumedCapacity)
			}
		})
	}
}

func TestWaitsThatAreTooLongFailAtOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		maxWait  time.Duration
		deadline time.Duration
		is       error
		never    bool // a budget of 1 a second never allows 10 units in time
	}{
		{"MaxWait", 15 * time.Second, 0, nil, false},
		{"MaxWait, never", 3 * time.Second, 0, nil, true},
		{"deadline", 0, 3 * time.Second, context.DeadlineExceeded, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &stub{answer: answering(200, consumed("10"))}
				g := mustNew(t, governor.Config{ReadUnits: 1, WriteUnits: governor.Unlimited, MaxWait: tt.maxWait})
				c, began := s.client(g), time.Now()
				get := func() error {
					ctx := t.Context()
					if tt.deadline > 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.deadline)
						defer cancel()
					}
					_, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key})
					return err
				}
				if err := get(); err != nil {
					t.Fatal(err)
				}
				before := budgetOf(g, "", "", governor.Read).Available
				err := get()
				if wait, ok := errors.AsType[*governor.WaitError](err); !ok || wait.Wait < 10*time.Second || wait.Direction != governor.Read || wait.MaxWait != tt.maxWait || wait.Never != tt.never {
					t.Errorf("got %#v", err)
				}
				if tt.is != nil && !errors.Is(err, tt.is) {
					t.Errorf("%v is not %v", err, tt.is)
				}
				if time.Since(began) != 0 || len(s.calls) != 1 {
					t.Errorf("it took %v and %d calls", time.Since(began), len(s.calls))
				}
				if after := budgetOf(g, "", "", governor.Read); after.Available != before || after.Refused != 1 {
					t.Errorf("available %v, then %v; refused %d", before, after.Available, after.Refused)
				}
			})
		})
	}
}

// A call cancelled while it waits leaves its tokens, and its turn, to the next.
func TestCancelledWaitsLeakNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{answer: answering(200, consumed("1"))}
		g := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 1, Burst: time.Second})
		c := s.client(g)
		put := func(ctx context.Context) error {
			_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("t"), Item: key})
			return err
		}
		if err := put(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		for range 5 {
			go func() { errs <- put(ctx) }()
		}
		synctest.Wait()
		if b := budgetOf(g, "", "", governor.Write); b.Waiting != 5 {
			t.Errorf("%d wait for the account", b.Waiting)
		}
		cancel()
		for range 5 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		began := time.Now()
		if err := put(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("the next waited %v", d)
		}
		if b := budgetOf(g, "", "", governor.Write); b.Waiting != 0 || b.Consumed != 2 {
			t.Errorf("%d wait, %v consumed", b.Waiting, b.Consumed)
		}
	})
}

func TestTwoGovernorsBothHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &stub{answer: answering(200, consumed("1"))}
		a := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 10})
		b := mustNew(t, governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 5})
		c, began := s.client(a, b, a), time.Now()
		for range 55 {
			if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("t"), Item: key}); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("55 units at 5 a second, of which 5 were there, took %v", d)
		}
		if ca, cb := budgetOf(a, "", "", governor.Write).Consumed, budgetOf(b, "", "", governor.Write).Consumed; ca != 55 || cb != 55 {
			t.Errorf("consumed %v and %v", ca, cb)
		}
	})
}

func TestBadConfigs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		field string
		cfg   governor.Config
	}{
		{"ReadUnits", governor.Config{}},
		{"ReadUnits", governor.Config{WriteUnits: 5}},
		{"WriteUnits", governor.Config{ReadUnits: 5, WriteUnits: -1}},
		{"WriteUnits", governor.Config{ReadUnits: 5, WriteUnits: math.NaN()}},
		{"WriteUnits", governor.Config{ReadUnits: 5, WriteUnits: math.Inf(-1)}},
		{"WriteUnits", governor.Config{ReadUnits: 5, WriteUnits: 1e9}},
		{"WriteUnits", governor.Config{ReadUnits: 5, WriteUnits: 1e300}},
		{"WriteUnits", governor.Config{ReadUnits: 5, WriteUnits: 1e-9}},
		{"Tables[t].WriteUnits", governor.Config{Tables: map[string]governor.Limits{"t": {ReadUnits: 1}}}},
		{"Tables[]", governor.Config{Tables: map[string]governor.Limits{"": {ReadUnits: 1, WriteUnits: 1}}}},
		{"Tables[t].Indexes[x].ReadUnits", governor.Config{Tables: map[string]governor.Limits{"t": {ReadUnits: 1, WriteUnits: 1, Indexes: map[string]governor.Limits{"x": {WriteUnits: 1}}}}}},
		{"Burst", governor.Config{ReadUnits: 5, WriteUnits: 5, Burst: -1}},
		{"Burst", governor.Config{ReadUnits: 5, WriteUnits: 5, Burst: time.Second, Coordinator: &flaky{}}},
		{"Start", governor.Config{ReadUnits: 5, WriteUnits: 5, Start: time.Minute}},
		{"Start", governor.Config{ReadUnits: 5, WriteUnits: 5, Start: time.Millisecond, Coordinator: &flaky{}}},
		{"MaxWait", governor.Config{ReadUnits: 5, WriteUnits: 5, MaxWait: -1}},
		{"Coordinator", governor.Config{ReadUnits: governor.Unlimited, WriteUnits: governor.Unlimited, Coordinator: &flaky{}}},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.field, tt.cfg), func(t *testing.T) {
			t.Parallel()
			g, err := governor.New(tt.cfg)
			if bad, ok := errors.AsType[*governor.ConfigError](err); !ok || bad.Field != tt.field {
				t.Errorf("got %v", err)
			}
			if g != nil {
				t.Error("and a governor")
			}
		})
	}
}
