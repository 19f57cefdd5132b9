package snssqs

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/weirlimits/weir/internal/fleet/configflow"
)

// Queue is the part of SQS that a consumer uses.
type Queue interface {
	// ReceiveMessage waits for messages.
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	// DeleteMessageBatch deletes messages that have been handled.
	DeleteMessageBatch(
		context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options),
	) (*sqs.DeleteMessageBatchOutput, error)
}

// Consumer applies the events of a cell's queue. Any number of consumers may compete for one queue: what one of them
// applies is in the cell's store. All fields but Log are required.
type Consumer struct {
	Client Queue
	URL    string
	// Apply applies an event. If it fails, the event is delivered again.
	Apply func(context.Context, configflow.Event) error
	Log   *slog.Logger

	bad atomic.Uint64
}

// wait is how long SQS waits for a message: the longest that it supports.
const wait = 20 * time.Second

// Bad returns how many messages could not be decoded. They stay in the queue, for its dead-letter queue.
func (c *Consumer) Bad() uint64 { return c.bad.Load() }

// Run applies events until ctx ends. While the queue cannot be read, it retries at growing intervals; comparing the
// stores finds what is missed meanwhile.
func (c *Consumer) Run(ctx context.Context) error {
	for pause := time.Second; ctx.Err() == nil; {
		err := c.Once(ctx, wait)
		if err == nil || ctx.Err() != nil {
			pause = time.Second
			continue
		}
		if c.Log != nil {
			c.Log.WarnContext(
				ctx, "the queue of changes cannot be read: changes are found by comparing the stores",
				slog.Any("error", err), slog.Duration("again_in", pause),
			)
		}
		t := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		pause = min(2*pause, 30*time.Second)
	}
	return nil
}

// Once waits up to the given time for messages, in whole seconds, and applies those that come.
func (c *Consumer) Once(ctx context.Context, wait time.Duration) error {
	out, err := c.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &c.URL, MaxNumberOfMessages: 10, WaitTimeSeconds: int32(wait / time.Second),
	})
	if err != nil {
		return err
	}
	var done []types.DeleteMessageBatchRequestEntry
	for _, m := range out.Messages {
		e, err := configflow.DecodeEvent(body(aws.ToString(m.Body)))
		if err != nil {
			c.bad.Add(1)
		} else {
			err = c.Apply(ctx, e)
		}
		switch {
		case err == nil:
			done = append(done, types.DeleteMessageBatchRequestEntry{Id: m.MessageId, ReceiptHandle: m.ReceiptHandle})
		case c.Log != nil && ctx.Err() == nil:
			c.Log.ErrorContext(
				ctx, "a change was not applied: it will be delivered again",
				slog.String("message", aws.ToString(m.MessageId)), slog.Any("error", err),
			)
		}
	}
	if len(done) == 0 {
		return nil
	}
	_, err = c.Client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &c.URL, Entries: done})
	return err // a message not deleted is delivered again, and ignored
}

// body returns the published text, even if the subscription does not deliver it raw.
func body(text string) []byte {
	var envelope struct{ Type, Message string }
	if json.Unmarshal([]byte(text), &envelope) == nil && envelope.Type == "Notification" {
		return []byte(envelope.Message)
	}
	return []byte(text)
}
