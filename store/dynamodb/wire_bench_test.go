package dynamodb_test

import (
	"syscall"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// wrapped is a client that must make all of the store's calls.
type wrapped struct{ *sdk.Client }

// BenchmarkClients takes from a bucket on the engine, alternately with the store's own writes and with the SDK's, and
// reports the processor time of each. One operation is one take of each kind.
func BenchmarkClients(b *testing.B) {
	client := dynamotest.Client(b, dynamotest.Engine(b), own)
	table := dynamotest.Table(b)
	if _, err := dynamodb.Create(b.Context(), client, table, dynamodb.CreateConfig{}); err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	take := store.Take{Debits: []store.Debit{of(bkt("e"), plenty, 1)}}
	var takes [2]func()
	for i, c := range []dynamodb.API{client, wrapped{client}} {
		s, err := dynamodb.New(dynamodb.Config{Client: c, Table: table, CallTimeout: patient, WriteTimeout: patient})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		takes[i] = func() {
			if out, err := s.Take(ctx, take); err != nil || !out.Allowed {
				b.Fatal(out, err)
			}
		}
		for range 10 {
			takes[i]()
		}
	}
	var spent [2]time.Duration
	const turn = 100
	for n := 0; b.Loop(); n++ {
		for i, take := range takes {
			before := processorTime(b)
			for range turn {
				take()
			}
			spent[i] += processorTime(b) - before
		}
	}
	takesEach := float64(b.N * turn)
	b.ReportMetric(float64(spent[0].Microseconds())/takesEach, "cpu-µs/own")
	b.ReportMetric(float64(spent[1].Microseconds())/takesEach, "cpu-µs/SDK")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
