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

	"github.com/weirlimits/weir/internal/configflow"
)

// Queue is what a consumer calls of SQS.
type Queue interface {
	// ReceiveMessage waits for messages.
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	// DeleteMessageBatch says that messages are done with.
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
}

// Consumer applies the events of a cell's queue. Any number may read one queue, in competition: what one of them applies
// is in the cell's store. All but Log are required.
type Consumer struct {
	Client Queue
	URL    string
	// Apply brings over what an event tells of. What it fails on is delivered again.
	Apply func(context.Context, configflow.Event) error
	Log   *slog.Logger

	bad atomic.Uint64
}

// wait is how long SQS waits for a message, the most that it does.
const wait = 20 * time.Second

// Bad returns how many messages could not be read. They stay in the queue, for its dead-letter queue.
func (c *Consumer) Bad() uint64 { return c.bad.Load() }

// Run works until ctx ends. While the queue cannot be read it tries again, ever less often: what is missed until then is
// found by comparing.
func (c *Consumer) Run(ctx context.Context) error {
	for pause := time.Second; ctx.Err() == nil; {
		err := c.Once(ctx, wait)
		if err == nil || ctx.Err() != nil {
			pause = time.Second
			continue
		}
		if c.Log != nil {
			c.Log.WarnContext(ctx, "the queue of changes cannot be read: they are found by comparing", slog.Any("error", err), slog.Duration("again_in", pause))
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

// Once waits so long for messages, to the second, and applies those that come.
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
			c.Log.ErrorContext(ctx, "apply a change: it is delivered again", slog.String("message", aws.ToString(m.MessageId)), slog.Any("error", err))
		}
	}
	if len(done) == 0 {
		return nil
	}
	_, err = c.Client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &c.URL, Entries: done})
	return err // one that was not deleted is delivered again, and passed over
}

// body returns what was published, also where the subscription does not deliver it raw.
func body(text string) []byte {
	var envelope struct{ Type, Message string }
	if json.Unmarshal([]byte(text), &envelope) == nil && envelope.Type == "Notification" {
		return []byte(envelope.Message)
	}
	return []byte(text)
}
