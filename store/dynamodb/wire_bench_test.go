package dynamodb_test

import (
	"syscall"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// wrapped is a client that must make all of the store's calls.
type wrapped struct{ *sdk.Client }

// BenchmarkClients takes from a bucket on the engine, and reads it, alternately with the store's own requests and with the
// SDK's, and reports the processor time of each. One operation is a hundred calls of each kind.
func BenchmarkClients(b *testing.B) {
	client := dynamotest.Client(b, dynamotest.Engine(b), own)
	table := dynamotest.Table(b)
	if _, err := dynamodb.Create(b.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	var stores [2]*dynamodb.Store
	for i, c := range []dynamodb.API{client, wrapped{client}} {
		s, err := dynamodb.New(dynamodb.Config{Client: c, Table: table, CallTimeout: patient, WriteTimeout: patient})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		stores[i] = s
	}
	take := store.Take{Debits: []store.Debit{of(bkt("e"), plenty, 1)}}
	b.Run("take", func(b *testing.B) {
		compare(b, stores, func(s *dynamodb.Store) {
			if out, err := s.Take(ctx, take); err != nil || !out.Allowed {
				b.Fatal(out, err)
			}
		})
	})
	b.Run("read", func(b *testing.B) {
		compare(b, stores, func(s *dynamodb.Store) {
			if snap, err := s.Peek(ctx, bkt("e")); err != nil || snap.States[0].ID == 0 {
				b.Fatal(snap, err)
			}
		})
	})
}

func compare(b *testing.B, stores [2]*dynamodb.Store, call func(*dynamodb.Store)) {
	for _, s := range stores {
		for range 10 {
			call(s)
		}
	}
	var spent [2]time.Duration
	const turn = 100
	for b.Loop() {
		for i, s := range stores {
			before := processorTime(b)
			for range turn {
				call(s)
			}
			spent[i] += processorTime(b) - before
		}
	}
	calls := float64(b.N * turn)
	b.ReportMetric(float64(spent[0].Microseconds())/calls, "cpu-µs/own")
	b.ReportMetric(float64(spent[1].Microseconds())/calls, "cpu-µs/SDK")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
