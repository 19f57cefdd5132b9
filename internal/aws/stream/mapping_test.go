package stream_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aws/aws-lambda-go/events"
)

type handler = func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error)

// mapping delivers the shards of a stream as Lambda's event source mapping does, with partial responses and bisection: in
// order, one batch at a time. After a failure it redelivers from the first failed record, split in halves if there is
// more than one, which uses no retry. A record that fails alone is retried up to the limit, and then goes to the failure
// destination. A throttled invocation never happened and uses no retry; a batch that was answered may still be
// redelivered.
type mapping struct {
	handle  handler
	batch   int
	retries int

	again, throttled float64 // probabilities

	dice *rand.Rand
	lost []string // records sent to the failure destination
}

func (m *mapping) deliver(t *testing.T, shard []events.DynamoDBEventRecord) {
	t.Helper()
	for batch := range slices.Chunk(shard, m.batch) {
		m.invoke(t.Context(), batch)
	}
}

func (m *mapping) invoke(ctx context.Context, batch []events.DynamoDBEventRecord) {
	for tries := 0; len(batch) > 0; {
		if m.dice.Float64() < m.throttled {
			continue
		}
		resp, err := m.handle(ctx, events.DynamoDBEvent{Records: batch})
		if m.dice.Float64() < m.again {
			resp, err = m.handle(ctx, events.DynamoDBEvent{Records: batch})
		}
		if err == nil && len(resp.BatchItemFailures) == 0 {
			return
		}
		if err == nil {
			at := slices.IndexFunc(batch, func(r events.DynamoDBEventRecord) bool {
				return slices.Contains(resp.BatchItemFailures, events.DynamoDBBatchItemFailure{ItemIdentifier: r.Change.SequenceNumber})
			})
			batch = batch[max(at, 0):]
		}
		if len(batch) > 1 {
			m.invoke(ctx, batch[:len(batch)/2])
			batch = batch[len(batch)/2:]
			continue
		}
		if tries++; tries > m.retries {
			m.lost = append(m.lost, batch[0].Change.SequenceNumber)
			return
		}
	}
}

// Other tests rely on the mapping.
func TestMapping(t *testing.T) {
	t.Parallel()
	var calls []int
	seen := make(map[string]int)
	m := &mapping{batch: 8, retries: 3, dice: rand.New(rand.NewPCG(1, 2))}
	m.handle = func(_ context.Context, e events.DynamoDBEvent) (resp events.DynamoDBEventResponse, err error) {
		calls = append(calls, len(e.Records))
		for _, r := range e.Records {
			seen[r.Change.SequenceNumber]++
			if r.Change.SequenceNumber == "5" {
				resp.BatchItemFailures = append(resp.BatchItemFailures, events.DynamoDBBatchItemFailure{ItemIdentifier: "5"})
			}
		}
		return resp, nil
	}
	var shard []events.DynamoDBEventRecord
	for _, n := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		shard = append(shard, events.DynamoDBEventRecord{Change: events.DynamoDBStreamRecord{SequenceNumber: n}})
	}
	m.deliver(t, shard)
	if !slices.Equal(m.lost, []string{"5"}) || seen["5"] != 1+1+3 || seen["0"] != 1 || seen["9"] != 1 || seen["7"] < 2 {
		t.Errorf("lost %q, seen %v, in calls of %v", m.lost, seen, calls)
	}
}
