package stream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/weirlimits/weir/store/dynamodb"
)

// Streams is the part of the streams client that a reader calls.
type Streams interface {
	// DescribeStream lists the shards of a stream.
	DescribeStream(
		context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options),
	) (*dynamodbstreams.DescribeStreamOutput, error)
	// GetShardIterator returns an iterator from which to read a shard.
	GetShardIterator(
		context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options),
	) (*dynamodbstreams.GetShardIteratorOutput, error)
	// GetRecords reads the next records.
	GetRecords(
		context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options),
	) (*dynamodbstreams.GetRecordsOutput, error)
}

// Reader reads the stream of a table and books it, together with the readers of other processes. Each shard is read
// by one of them at a time, which holds a lease in the table, and only after its parent shard was read to the end. If
// a reader dies, others take over its shards within LeaseFor, from the last record it counted. While there is nothing
// to count, a reader that has no others beside it makes one read per Poll and shard, one each of shards and leases
// every five Polls, and no writes.
type Reader struct {
	// Config defines what is booked, and how.
	Config

	// Streams makes the calls. ARN is the stream's.
	Streams Streams
	ARN     string
	// LeaseFor is how long a silent reader keeps its shards. The default is 30 s, or three times Poll if that is more.
	LeaseFor time.Duration
	// Poll is how long to wait between two reads of a shard. What comes meanwhile is booked at once. Defaults to 2 s.
	Poll time.Duration
	// Batch is the maximum number of records booked at once. Larger batches need fewer writes. The default is 5,000.
	Batch int

	owner string
	book  *booker
	mu    sync.Mutex
	mine  map[string]context.CancelFunc // shards being read
	alone bool                          // no other reader has a shard
	wg    sync.WaitGroup
}

// Run reads until ctx is done, which is not an error. Everything counted by then is kept; the leases are released.
func (r *Reader) Run(ctx context.Context) error {
	r.Poll = cmp.Or(r.Poll, 2*time.Second)
	r.LeaseFor = cmp.Or(r.LeaseFor, max(30*time.Second, 3*r.Poll))
	r.Batch = cmp.Or(r.Batch, 5000)
	r.owner, r.book, r.mine = rand.Text(), newBooker(r.Config), make(map[string]context.CancelFunc)
	defer r.wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for first := true; ; first = false {
		err := r.share(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			r.book.log.LogAttrs(ctx, slog.LevelError, "the stream could not be read", failure("stream", r.ARN, err)...)
		}
		if smithytime.SleepWithContext(ctx, min(5*r.Poll, r.LeaseFor/3)) != nil {
			return nil
		}
	}
}

// share lists the shards, and takes this reader's share of those that can be read.
func (r *Reader) share(ctx context.Context) error {
	shards, err := r.shards(ctx)
	if err != nil {
		return err
	}
	leases, err := r.Store.StreamLeases(ctx)
	if err != nil {
		return err
	}
	now := time.Now().Add(r.Store.Skew())
	held := map[string]int{r.owner: 0} // by owner
	var free, open []string
	alone := true
	for id, parent := range shards {
		if _, there := shards[parent]; there && !leases[parent].Done || leases[id].Done {
			continue
		}
		open = append(open, id)
		l := leases[id]
		other := l.Owner != "" && l.Owner != r.owner
		if alone = alone && !other; other && l.Until.After(now) {
			r.stop(id) // taken while it was not renewed
		}
		if l.Owner != "" && l.Until.After(now) {
			held[l.Owner]++
		} else {
			free = append(free, id)
		}
	}
	r.mu.Lock()
	r.alone = alone
	r.mu.Unlock()
	fair := int(math.Ceil(float64(len(open)) / float64(len(held))))
	for _, id := range free {
		if held[r.owner] >= fair {
			break
		}
		if err := r.take(ctx, id, r.owner); err != nil {
			return err
		}
		held[r.owner]++
	}
	// Take one shard at a time from a reader that holds more than its share.
	for _, id := range open {
		if from := leases[id].Owner; from != r.owner && held[r.owner] < fair && held[from] > fair &&
			leases[id].Until.After(now) {
			return r.take(ctx, id, from)
		}
	}
	return nil
}

// shards returns the shards of the stream, each with its parent.
func (r *Reader) shards(ctx context.Context) (map[string]string, error) {
	parents := make(map[string]string)
	in := &dynamodbstreams.DescribeStreamInput{StreamArn: &r.ARN}
	for {
		out, err := r.Streams.DescribeStream(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, s := range out.StreamDescription.Shards {
			parents[aws.ToString(s.ShardId)] = aws.ToString(s.ParentShardId)
		}
		if in.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId; in.ExclusiveStartShardId == nil {
			return parents, nil
		}
	}
}

// stop stops reading a shard, if this reader does.
func (r *Reader) stop(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stop := r.mine[id]; stop != nil {
		stop()
	}
}

// take leases a shard if it is still available, and starts reading it.
func (r *Reader) take(ctx context.Context, id, from string) error {
	r.mu.Lock()
	_, reading := r.mine[id]
	r.mu.Unlock()
	if reading {
		return nil
	}
	lease, ok, err := r.Store.LeaseStream(ctx, id, r.owner, from, r.LeaseFor)
	if err != nil || !ok {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	r.mu.Lock()
	r.mine[id] = stop
	r.mu.Unlock()
	r.wg.Go(func() {
		defer func() {
			stop()
			r.mu.Lock()
			delete(r.mine, id)
			r.mu.Unlock()
		}()
		s := &shardReader{Reader: r, lease: lease, kept: time.Now()}
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			r.book.log.LogAttrs(ctx, slog.LevelError, "a shard could not be read", failure("shard", id, err)...)
		}
	})
	return nil
}

// shardReader reads one shard.
type shardReader struct {
	*Reader

	lease    dynamodb.StreamLease
	kept     time.Time
	moved    bool // records were read since then, besides those of leases
	iterator *string
}

// renew reports whether to write the lease although nothing was counted: to keep the shard from other readers, or what
// was read from being read again. The lease itself is a record of the stream, which is no reason to write it.
func (s *shardReader) renew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.moved || !s.alone) && time.Since(s.kept) > s.LeaseFor/3
}

// errLost reports that another reader has taken the shard.
var errLost = errors.New("another reader has taken the shard")

// read reads until the end of the shard, or until the lease is lost.
func (s *shardReader) read(ctx context.Context) error {
	defer s.leave(ctx)
	for {
		b, err := s.gather(ctx)
		if err == nil && len(b.records) > 0 {
			err = s.bookAll(ctx, b.records)
		}
		if err != nil {
			return err
		}
		s.lease.After, s.lease.Done = cmp.Or(b.last, s.lease.After), b.ended
		s.moved = s.moved || b.moved
		if len(b.records) > 0 || b.ended || s.renew() {
			if err := s.keep(ctx); err != nil {
				return err
			}
		}
		switch {
		case b.ended:
			return nil
		case b.seen < s.Batch && smithytime.SleepWithContext(ctx, s.Poll) != nil:
			return ctx.Err()
		}
	}
}

// keep stores how far the shard was read, and renews the lease.
func (s *shardReader) keep(ctx context.Context) error {
	_, ok, err := s.Store.KeepStream(ctx, s.lease, s.LeaseFor)
	if err == nil && !ok {
		err = errLost
	}
	s.kept, s.moved = time.Now(), false
	return err
}

// leave releases the lease, so that other readers need not wait for it to expire.
func (s *shardReader) leave(ctx context.Context) {
	if s.lease.Done {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.LeaseFor/3)
	defer cancel()
	_, _, _ = s.Store.KeepStream(ctx, s.lease, -time.Second) // if this fails, the lease expires
}

// batch is what was read at once.
type batch struct {
	records []dynamodb.StreamRecord // those that count
	seen    int                     // all of them
	last    string                  // the sequence number of the last one
	moved   bool                    // others than those of leases
	ended   bool                    // so has the shard
}

// gather reads the available records, at most one batch.
func (s *shardReader) gather(ctx context.Context) (b batch, err error) {
	for b.seen < s.Batch {
		out, err := s.next(ctx, cmp.Or(b.last, s.lease.After))
		var expired *streamtypes.ExpiredIteratorException
		var trimmed *streamtypes.TrimmedDataAccessException
		switch {
		case errors.As(err, &expired):
			s.iterator = nil
			continue
		case errors.As(err, &trimmed):
			// Later records make up for the lost ones.
			s.book.log.LogAttrs(
				ctx, slog.LevelWarn, "records were lost: a stream keeps records for only a day",
				slog.String("shard", s.lease.Shard),
			)
			s.lease.After, b.last, s.iterator = "", "", nil
			continue
		case err != nil:
			s.iterator = nil
			return batch{}, err
		}
		for i := range out.Records {
			c := out.Records[i].Dynamodb
			b.last = aws.ToString(c.SequenceNumber)
			b.moved = b.moved || !dynamodb.IsStreamLease(streamed(c.Keys["PK"]))
			r := record(c.Keys, c.OldImage, c.NewImage, aws.ToTime(c.ApproximateCreationDateTime), streamed)
			if r.Keys != nil {
				b.records = append(b.records, r)
			}
		}
		b.seen += len(out.Records)
		s.iterator = out.NextShardIterator
		if b.ended = s.iterator == nil; b.ended || len(out.Records) == 0 {
			break
		}
	}
	return b, nil
}

// next reads the records after a sequence number, or from the start of the shard if it is "".
func (s *shardReader) next(ctx context.Context, after string) (*dynamodbstreams.GetRecordsOutput, error) {
	if s.iterator == nil {
		in := &dynamodbstreams.GetShardIteratorInput{
			StreamArn: &s.ARN, ShardId: &s.lease.Shard, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
		}
		if after != "" {
			in.ShardIteratorType, in.SequenceNumber = streamtypes.ShardIteratorTypeAfterSequenceNumber, &after
		}
		out, err := s.Streams.GetShardIterator(ctx, in)
		if err != nil {
			return nil, err
		}
		s.iterator = out.ShardIterator
	}
	return s.Streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{
		ShardIterator: s.iterator, Limit: aws.Int32(1000),
	})
}

// bookAll books records, and retries until all are counted except those that cannot be read at all.
func (s *shardReader) bookAll(ctx context.Context, records []dynamodb.StreamRecord) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, s.LeaseFor/6) {
		failed, err := s.book.book(ctx, slices.Values(records))
		var left []dynamodb.StreamRecord
		if err != nil {
			left = records
		}
		for i := range records {
			switch cause := failed[i]; {
			case cause == nil:
			case errors.Is(cause, dynamodb.ErrPoison):
				s.book.log.LogAttrs(
					ctx, slog.LevelError, "a record was not counted", failure("shard", s.lease.Shard, cause)...,
				)
			default:
				left, err = append(left, records[i]), cause
			}
		}
		if len(left) == 0 {
			return nil
		}
		s.book.log.LogAttrs(
			ctx, slog.LevelWarn, "booking failed: trying again", slog.String("shard", s.lease.Shard),
			slog.Int("records", len(left)), slog.String("error", err.Error()),
		)
		records = left
		if smithytime.SleepWithContext(ctx, pause) != nil {
			return ctx.Err()
		}
		if err := s.keep(ctx); err != nil {
			return err
		}
	}
}
