package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-lambda-go/events"

	"github.com/weirlimits/weir/store"
)

// Archiver archives the audit events that DynamoDB removes from a table since their time is up. What somebody deletes,
// such as a purge, is not archived.
type Archiver struct {
	To Putter
	// KeyOf returns the key of the audit event that an item is, by the item's; false if it is none.
	KeyOf func(pk, sk string) (store.Key, bool)
}

// Archive writes the events that records of the table's stream tell of, and leaves every other record alone. It returns
// the sequence numbers of the records that are to be delivered again, with the reason: to archive again what was
// archived changes nothing.
func (a Archiver) Archive(ctx context.Context, records []events.DynamoDBEventRecord) (failed []string, err error) {
	var expired []Event
	numbers := make(map[[2]string]string) // of records, by namespace and id
	var errs []error
	for i := range records {
		r := &records[i]
		e, ok, err := a.expired(r)
		switch {
		case err != nil:
			failed = append(failed, r.Change.SequenceNumber)
			errs = append(errs, fmt.Errorf("record %s of the stream: %w", r.Change.SequenceNumber, err))
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

// expired returns the audit event that a record says has expired.
func (a Archiver) expired(r *events.DynamoDBEventRecord) (e Event, ok bool, err error) {
	by := r.UserIdentity
	if r.EventName != string(events.DynamoDBOperationTypeRemove) || by == nil || by.Type != "Service" || by.PrincipalID != "dynamodb.amazonaws.com" {
		return e, false, nil
	}
	k, ok := a.KeyOf(text(r.Change.Keys["PK"]), text(r.Change.Keys["SK"]))
	if !ok {
		return e, false, nil
	}
	value, ok := r.Change.OldImage["d"]
	if !ok || value.DataType() != events.DataTypeBinary {
		return e, false, fmt.Errorf("audit event %s has no old image: the stream must have the view NEW_AND_OLD_IMAGES", k)
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
