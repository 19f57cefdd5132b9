package table

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// The attributes of the reader of a shard of the stream.
const (
	attrUntil = "until" // Unix time in nanoseconds
	attrAtSeq = "seq"
	attrDone  = "done"
)

// keepLease is how long a shard that is no longer read, to its end or not, is remembered: longer than the stream lists
// it or keeps any of its records.
const keepLease = 3 * 24 * time.Hour

// StreamLease is the reader of a shard of the table's stream, and how far it has come.
type StreamLease struct {
	Shard string
	Owner string    // "": no reader has had it yet
	Until time.Time // from then on, others may read it
	After string    // the sequence number of the last record that was counted, or ""
	Done  bool      // read to its end
}

// IsStreamLease reports whether an item with a partition key is a [StreamLease].
func IsStreamLease(partitionKey types.AttributeValue) bool {
	s, ok := partitionKey.(*types.AttributeValueMemberS)
	return ok && s.Value == streamKey("").PK
}

// StreamLeases returns the leases of the table's stream, by shard.
func (ws *Windows) StreamLeases(ctx context.Context) (map[string]StreamLease, error) {
	if err := ws.t.Ready(ctx); err != nil {
		return nil, err
	}
	key := streamKey("")
	w := ws.t.Walk([]Span{{"", AttrPK, AttrSK, key.PK, key.SK, key.SK[:len(key.SK)-1] + "$"}}, false, "")
	leases := make(map[string]StreamLease)
	for {
		entries, err := w.Next(ctx, 100)
		if err != nil || len(entries) == 0 {
			return leases, err
		}
		for _, e := range entries {
			l, err := parseLease(strings.TrimPrefix(e.Key.SK, key.SK), e.Attrs)
			if err != nil {
				return nil, ws.t.Damaged(e.Key, err)
			}
			leases[l.Shard] = l
		}
	}
}

func parseLease(shard string, attrs map[string]types.AttributeValue) (l StreamLease, err error) {
	l.Shard = shard
	if l.Owner, err = Field(attrs, attrBy, Text); err != nil {
		return l, err
	}
	n, err := Field(attrs, attrUntil, Number)
	if err != nil {
		return l, err
	}
	l.Until = time.Unix(0, n)
	if _, ok := attrs[attrAtSeq]; ok {
		l.After, err = Field(attrs, attrAtSeq, Text)
	}
	_, l.Done = attrs[attrDone]
	return l, err
}

// LeaseStream claims a shard of the stream that has no reader, whose reader's time is up, or whose reader is from, and
// returns how far it was read. It reports whether the shard could be claimed.
func (ws *Windows) LeaseStream(
	ctx context.Context, shard, owner, from string, d time.Duration,
) (StreamLease, bool, error) {
	now := ws.t.Clock()
	until := now.Add(d)
	return ws.t.lease(ctx, shard, &dynamodb.UpdateItemInput{
		UpdateExpression: aws.String("SET #b = :b, #u = :u, #t = :t"),
		ConditionExpression: aws.String(
			"attribute_not_exists(#d) AND (attribute_not_exists(#b) OR #u < :n OR #b = :f)",
		),
		ExpressionAttributeNames: map[string]string{"#b": attrBy, "#u": attrUntil, "#t": AttrTTL, "#d": attrDone},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":b": Str(owner), ":u": Num(until.UnixNano()), ":t": Num(until.Add(keepLease).Unix()),
			":n": Num(now.UnixNano()), ":f": Str(from),
		},
	})
}

// KeepStream records how far the owner of a lease has come, and extends the lease to d from now; 0 gives it up. It
// reports whether the lease was still the owner's.
func (ws *Windows) KeepStream(ctx context.Context, l StreamLease, d time.Duration) (StreamLease, bool, error) {
	until := ws.t.Clock().Add(d)
	in := &dynamodb.UpdateItemInput{
		UpdateExpression:         aws.String("SET #u = :u, #t = :t"),
		ConditionExpression:      aws.String("#b = :b"),
		ExpressionAttributeNames: map[string]string{"#b": attrBy, "#u": attrUntil, "#t": AttrTTL},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":b": Str(l.Owner), ":u": Num(until.UnixNano()), ":t": Num(until.Add(keepLease).Unix()),
		},
	}
	if l.After != "" {
		*in.UpdateExpression += ", #s = :s"
		in.ExpressionAttributeNames["#s"], in.ExpressionAttributeValues[":s"] = attrAtSeq, Str(l.After)
	}
	if l.Done {
		*in.UpdateExpression += ", #d = :d"
		in.ExpressionAttributeNames["#d"], in.ExpressionAttributeValues[":d"] = attrDone, Num(1)
	}
	return ws.t.lease(ctx, l.Shard, in)
}

func (t *Table) lease(ctx context.Context, shard string, in *dynamodb.UpdateItemInput) (StreamLease, bool, error) {
	if err := t.Ready(ctx); err != nil {
		return StreamLease{}, false, err
	}
	ctx, cancel := t.Within(ctx)
	defer cancel()
	key := streamKey(shard)
	in.TableName, in.Key, in.ReturnValues = &t.cfg.Table, key.Item(), types.ReturnValueAllNew
	var out *dynamodb.UpdateItemOutput
	err := t.Attempt(ctx, func(ctx context.Context) (err error) {
		out, err = t.cfg.Client.UpdateItem(ctx, in, Once...)
		return err
	})
	var failed *types.ConditionalCheckFailedException
	switch {
	case errors.As(err, &failed):
		return StreamLease{}, false, nil
	case err != nil:
		return StreamLease{}, false, t.Trouble("stream", key.String(), err)
	}
	l, err := parseLease(shard, out.Attributes)
	if err != nil {
		return l, false, t.Damaged(key, err)
	}
	return l, true, nil
}
