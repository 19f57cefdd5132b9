package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/internal/aws/archive"
)

// streamHandler handles a batch of the table's stream.
type streamHandler = func(context.Context, events.DynamoDBEvent) (events.DynamoDBEventResponse, error)

// archiving returns a handler that also archives the audit events of each batch. Both steps are idempotent, so a
// batch is redelivered from the first record that either of them failed on.
func archiving(next streamHandler, a *archive.Archiver, log *slog.Logger) streamHandler {
	if a == nil {
		return next
	}
	return func(ctx context.Context, e events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
		failed, err := a.Archive(ctx, e.Records)
		if err != nil {
			log.LogAttrs(
				ctx, slog.LevelError, "archive", slog.String("error", err.Error()), slog.Any("records", failed),
			)
		}
		resp, err := next(ctx, e)
		for _, number := range failed {
			item := events.DynamoDBBatchItemFailure{ItemIdentifier: number}
			if !slices.Contains(resp.BatchItemFailures, item) {
				resp.BatchItemFailures = append(resp.BatchItemFailures, item)
			}
		}
		return resp, err
	}
}
