package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/store"
)

// Archiver archives the audit events that DynamoDB removes from a table because they expired. Events that are
// deleted otherwise are not archived.
type Archiver struct {
	To Putter
	// KeyOf maps an item's key to the key of the audit event it holds, or returns false if it holds none.
	KeyOf func(pk, sk string) (store.Key, bool)
}

// Archive writes the expired events found in records of the table's stream, and ignores all other records. It returns
// the sequence numbers of the records to be redelivered, with the reason. Archiving an event again changes nothing.
func (a Archiver) Archive(ctx context.Context, records []events.DynamoDBEventRecord) (failed []string, err error) {
	var expired []Event
	numbers := make(map[[2]string]string) // sequence numbers of records, by namespace and ID
	var errs []error
	for i := range records {
		r := &records[i]
		e, ok, err := a.expired(r)
		switch {
		case err != nil:
			failed = append(failed, r.Change.SequenceNumber)
			errs = append(errs, fmt.Errorf("stream record %s: %w", r.Change.SequenceNumber, err))
		case ok:
			expired = append(expired, e)
			numbers[[2]string{e.Namespace, e.ID}] = r.Change.SequenceNumber
		}
	}
	lost, err := Write(ctx, a.To, expired)
	for _, e := range lost {
		failed = append(failed, numbers[[2]string{e.Namespace, e.ID}])
	}
	return failed, errors.Join(append(errs, err)...)
}

// expired returns the audit event whose expiry a record reports.
func (a Archiver) expired(r *events.DynamoDBEventRecord) (e Event, ok bool, err error) {
	by := r.UserIdentity
	if r.EventName != string(events.DynamoDBOperationTypeRemove) || by == nil || by.Type != "Service" ||
		by.PrincipalID != "dynamodb.amazonaws.com" {
		return e, false, nil
	}
	k, ok := a.KeyOf(text(r.Change.Keys["PK"]), text(r.Change.Keys["SK"]))
	if !ok {
		return e, false, nil
	}
	value, ok := r.Change.OldImage["d"]
	if !ok || value.DataType() != events.DataTypeBinary {
		return e, false, fmt.Errorf(
			"audit event %s has no old image: the stream's view type must be NEW_AND_OLD_IMAGES", k,
		)
	}
	e, err = FromRecord(k, value.Binary())
	return e, err == nil, err
}

func text(v events.DynamoDBAttributeValue) string {
	if v.DataType() != events.DataTypeString {
		return ""
	}
	return v.String()
}
