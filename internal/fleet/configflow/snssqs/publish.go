// Package snssqs brings configuration changes of a table to cells: the table's stream → a function that publishes one
// event per changed record to an SNS topic → an SQS queue per cell → any decider of the cell, which writes the change
// into the cell's own store, where all its deciders find it.
package snssqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/store"
)

// Topic is the part of SNS that a publisher uses.
type Topic interface {
	// PublishBatch publishes up to ten messages.
	PublishBatch(context.Context, *sns.PublishBatchInput, ...func(*sns.Options)) (*sns.PublishBatchOutput, error)
}

// Publisher publishes the changes in a table's stream. All fields but Log are required.
type Publisher struct {
	Client Topic
	ARN    string // of the topic
	// KeyOf returns the record that an item of the table holds, by its primary key; false if cells do not need it.
	KeyOf func(pk, sk string) (store.Key, bool)
	Log   *slog.Logger
}

// maxBatch is how many messages SNS accepts at once.
const maxBatch = 10

// message is an event and the number of the stream record that it comes from.
type message struct {
	event  configflow.Event
	number string
}

// Handle is the function's handler. For each record that changed, it publishes one event, the latest. A stream record
// that cannot be read, or whose event SNS does not accept, is reported as failed, while the others are still published.
// A failed record is retried, and set aside after as many tries as the event source mapping allows.
func (p *Publisher) Handle(ctx context.Context, e events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	var resp events.DynamoDBEventResponse
	fail := func(number string, err error) {
		if p.Log != nil {
			p.Log.LogAttrs(
				ctx, slog.LevelError, "a change was not published", slog.String("record", number),
				slog.String("error", err.Error()),
			)
		}
		resp.BatchItemFailures = append(resp.BatchItemFailures, events.DynamoDBBatchItemFailure{ItemIdentifier: number})
	}
	last := make(map[store.Key]int)
	var all []message
	for i := range e.Records {
		m, wanted, err := p.message(&e.Records[i])
		switch {
		case err != nil && m.number == "": // no number to report: fail the whole batch, which is then split in halves
			return events.DynamoDBEventResponse{}, err
		case err != nil:
			fail(m.number, err)
			continue
		case !wanted:
			continue
		}
		if at, twice := last[m.event.Key]; twice {
			all[at] = m // the stream holds the changes of a record in order
			continue
		}
		last[m.event.Key] = len(all)
		all = append(all, m)
	}
	for len(all) > 0 {
		n := min(len(all), maxBatch)
		p.publish(ctx, all[:n], fail)
		all = all[n:]
	}
	return resp, nil
}

var errNoImage = errors.New("it has no keys")

func (p *Publisher) message(r *events.DynamoDBEventRecord) (m message, wanted bool, err error) {
	m.number = r.Change.SequenceNumber
	pk, sk := text(r.Change.Keys["PK"]), text(r.Change.Keys["SK"])
	if pk == "" || sk == "" {
		return m, false, fmt.Errorf("stream record %q: %w", m.number, errNoImage)
	}
	key, ok := p.KeyOf(pk, sk)
	if !ok {
		return m, false, nil
	}
	m.event = configflow.Event{Key: key, Version: m.number}
	if _, err := configflow.DecodeEvent(m.event.Encode()); err != nil {
		return m, false, fmt.Errorf("stream record %q: %w", m.number, err)
	}
	return m, true, nil
}

func (p *Publisher) publish(ctx context.Context, some []message, fail func(string, error)) {
	in := &sns.PublishBatchInput{TopicArn: &p.ARN}
	for i, m := range some {
		in.PublishBatchRequestEntries = append(in.PublishBatchRequestEntries, types.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: aws.String(string(m.event.Encode())),
		})
	}
	out, err := p.Client.PublishBatch(ctx, in)
	if err != nil {
		for _, m := range some {
			fail(m.number, err)
		}
		return
	}
	for _, f := range out.Failed {
		if i, err := strconv.Atoi(aws.ToString(f.Id)); err == nil && i >= 0 && i < len(some) {
			//nolint:err113 // the text is from SNS
			fail(some[i].number, fmt.Errorf("SNS: %s: %s", aws.ToString(f.Code), aws.ToString(f.Message)))
		}
	}
}

func text(v events.DynamoDBAttributeValue) string {
	if v.DataType() != events.DataTypeString {
		return ""
	}
	return v.String()
}
