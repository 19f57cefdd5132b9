package stream

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/weirlimits/weir/store/dynamodb"
)

// lagReads is how many pages of a shard Lag looks through at most for a change that counts.
const lagReads = 20

// Lag returns the age of the oldest change of usage that no reader has counted; 0 if all are counted. It reports false
// if no reader has ever had a lease, as where a function reads the stream instead. It changes nothing.
func (r *Reader) Lag(ctx context.Context, now time.Time) (lag time.Duration, read bool, err error) {
	leases, err := r.Store.StreamLeases(ctx)
	if err != nil || len(leases) == 0 {
		return 0, false, err
	}
	shards, err := r.shards(ctx)
	if err != nil {
		return 0, true, err
	}
	for id, parent := range shards {
		if _, there := shards[parent]; there && !leases[parent].Done || leases[id].Done {
			continue // the parent's changes are older
		}
		first, err := r.uncounted(ctx, id, leases[id].After)
		if err != nil {
			return 0, true, err
		}
		if !first.IsZero() {
			lag = max(lag, now.Sub(first))
		}
	}
	return lag, true, nil
}

// uncounted returns when the first change of usage was made in a shard after a sequence number; the zero time if none
// was.
func (r *Reader) uncounted(ctx context.Context, shard, after string) (time.Time, error) {
	s := &shardReader{Reader: r, lease: dynamodb.StreamLease{Shard: shard}}
	for range lagReads {
		out, err := s.next(ctx, after)
		if err != nil {
			return time.Time{}, err
		}
		for i := range out.Records {
			c := out.Records[i].Dynamodb
			if dynamodb.Concerns(streamed(c.Keys["SK"])) {
				return aws.ToTime(c.ApproximateCreationDateTime), nil
			}
		}
		if s.iterator = out.NextShardIterator; s.iterator == nil || len(out.Records) == 0 {
			break
		}
	}
	return time.Time{}, nil
}
