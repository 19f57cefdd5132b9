package stream_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/storetest"
)

// metered is a store whose stream is booked before its usage is read.
type metered struct {
	*dynamodb.Store

	clock   *storetest.Clock
	ledger  *dynamodb.Ledger
	mu      sync.Mutex
	records []dynamodb.StreamRecord
}

func (m *metered) book(ctx context.Context) error {
	m.mu.Lock()
	records := m.records
	m.records = nil
	m.mu.Unlock()
	booked, err := m.ledger.Book(ctx, slices.Values(records))
	if err == nil && len(booked.Failed) > 0 {
		err = fmt.Errorf("not counted: %v", booked.Failed)
	}
	return err
}

// Usage books, then reads. It shortens the period of the query, because windows of one ID are read one by one.
func (m *metered) Usage(ctx context.Context, q store.UsageQuery) (store.UsagePage, error) {
	if err := m.book(ctx); err != nil {
		return store.UsagePage{}, err
	}
	now := m.clock.Now()
	if from := now.AddDate(0, 0, -60); q.From.Before(from) {
		q.From = from
	}
	if to := now.AddDate(0, 0, 60); q.To.After(to) {
		q.To = to
	}
	return m.Store.Usage(ctx, q)
}

// ForgetUsage books, then forgets.
func (m *metered) ForgetUsage(ctx context.Context, namespace string) error {
	if err := m.book(ctx); err != nil {
		return err
	}
	return m.Store.ForgetUsage(ctx, namespace)
}

// The windows that are booked from a table's stream pass the same suite as those of every other store.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.RunUsage(t, storetest.Harness{
		Caps: storetest.Caps{HandClock: true},
		Open: func(t testing.TB, clock *storetest.Clock) store.Store {
			t.Helper()
			m := &metered{clock: clock}
			fake := &dynamotest.Fake{Changed: func(_ string, old, replaced map[string]types.AttributeValue) {
				m.mu.Lock()
				defer m.mu.Unlock()
				keys := old
				if keys == nil {
					keys = replaced
				}
				m.records = append(m.records, dynamodb.StreamRecord{Keys: keys, Old: old, New: replaced})
			}}
			m.Store = open(t, fake, clock.Now)
			m.ledger = m.Store.Ledger(dynamodb.Metering{Retention: store.Retention{Hourly: -1, Daily: -1}})
			if err := m.book(t.Context()); err != nil { // usage is kept from now on
				t.Fatal(err)
			}
			return m
		},
	})
}
