package stream_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
)

// BenchmarkHandler books a synthetic stream of 1,000 buckets in batches of 5,000, on one processor, with the table in memory.
func BenchmarkHandler(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := newSynthetic(1, 1000, evening)
	s.shards = s.shards[:1]
	s.debits(20_000, time.Hour)
	var records, writes int
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		fake := &dynamotest.Fake{}
		handle := stream.Handler(stream.Config{Store: open(b, fake, func() time.Time { return evening }), NoSplit: true})
		b.StartTimer()
		for batch := range slices.Chunk(s.shards[0], 5000) {
			if resp, err := handle(b.Context(), events.DynamoDBEvent{Records: batch}); err != nil || len(resp.BatchItemFailures) > 0 {
				b.Fatal(resp, err)
			}
			records += len(batch)
		}
		writes += int(fake.Capacity().Write)
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(writes)/float64(records), "units/record")
}
