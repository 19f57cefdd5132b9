package schema

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Admin is the part of DynamoDB's client that [Create] and [Check] call.
type Admin interface {
	// CreateTable creates a table.
	CreateTable(
		context.Context, *dynamodb.CreateTableInput, ...func(*dynamodb.Options),
	) (*dynamodb.CreateTableOutput, error)
	// DescribeTable returns a table's keys, indexes and status.
	DescribeTable(
		context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options),
	) (*dynamodb.DescribeTableOutput, error)
	// DescribeTimeToLive returns the attribute by which items expire.
	DescribeTimeToLive(
		context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options),
	) (*dynamodb.DescribeTimeToLiveOutput, error)
	// UpdateTimeToLive makes items expire.
	UpdateTimeToLive(
		context.Context, *dynamodb.UpdateTimeToLiveInput, ...func(*dynamodb.Options),
	) (*dynamodb.UpdateTimeToLiveOutput, error)
	// UpdateContinuousBackups turns on point-in-time recovery.
	UpdateContinuousBackups(
		context.Context, *dynamodb.UpdateContinuousBackupsInput, ...func(*dynamodb.Options),
	) (*dynamodb.UpdateContinuousBackupsOutput, error)
	// GetItem reads the schema version.
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	// PutItem writes the schema version.
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	// Scan checks whether a table without a schema version is empty.
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Finding is the result of one check of a table.
type Finding struct {
	Name   string // "table", "clock", "keys", "index all", …, "ttl", "schema", "backups"
	OK     bool
	Detail string // what was found
	Remedy string // what to do; "" if nothing
}

// Report is the result of all checks of a table.
type Report struct {
	Table    string
	Findings []Finding
}

// OK reports whether a store works on the table and nothing is missing.
func (r *Report) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return !f.OK })
}

func (r *Report) add(name string, ok bool, detail, remedy string) {
	if ok {
		remedy = ""
	}
	r.Findings = append(r.Findings, Finding{name, ok, detail, remedy})
}

// fail adds a check that could not be made.
func (r *Report) fail(name string, err error) {
	if known, ok := errors.AsType[*store.Error](err); ok {
		r.add(name, false, known.Err.Error(), known.Hint)
		return
	}
	r.add(name, false, err.Error(), table.Hint(err))
}

// wrong returns the findings that are not OK, on one line.
func (r *Report) wrong() string {
	var all []string
	for _, f := range r.Findings {
		if !f.OK {
			all = append(all, f.Name+": "+f.Detail)
		}
	}
	return strings.Join(all, "; ")
}

var tableIndexes = []struct{ name, hash, sort string }{
	{table.IndexAll, table.AttrIndex, table.AttrSort},
	{table.IndexParent, table.AttrParent, table.AttrChild},
	{table.IndexScope, table.AttrScope, table.AttrOwner},
}

const (
	remedyCreate = "weir doctor --create-table"
	remedyOther  = "name another table, or delete this one, then run weir doctor --create-table"
	remedyWait   = "wait until it is active"
)

// Check inspects a table without changing anything: whether it exists, has weir's keys and indexes, deletes expired
// items, and has a layout that this version of weir supports; and whether this machine's clock is right. Problems are
// reported as findings. An error means that the table could not be inspected.
func Check(ctx context.Context, admin Admin, tableName string) (Report, error) {
	r := Report{Table: tableName}
	sent := time.Now()
	desc, date, err := describe(ctx, admin, tableName)
	if err != nil {
		return r, err
	}
	if desc == nil {
		r.add("table", false, "does not exist in this region", remedyCreate)
		return r, nil
	}
	r.add("table", active(desc.TableStatus), string(desc.TableStatus), remedyWait)
	if !date.IsZero() {
		r.clock(date, sent, time.Now())
	}
	r.shape(desc)
	name, err := ttlOf(ctx, admin, tableName)
	switch {
	case err != nil:
		r.fail("ttl", err)
	case name == "":
		r.add("ttl", false, "is off: expired items are kept and billed", remedyCreate)
	default:
		r.add("ttl", name == table.AttrTTL, "on attribute "+name, remedyOther)
	}
	if desc.TableStatus == types.TableStatusCreating {
		return r, nil
	}
	sc, err := ReadSchema(ctx, admin, tableName)
	switch {
	case err != nil:
		r.fail("schema", err)
	case sc.Version == 0:
		r.add("schema", false, "no version: the table is not weir's, or is incomplete", remedyCreate)
	case sc.Client > SchemaVersion:
		r.add("schema", false, sc.String(), hintUpgrade)
	default:
		r.add("schema", sc.Version >= SchemaVersion && sc.Target == 0, sc.String(), hintMigrate)
	}
	return r, nil
}

// active reports whether a table serves all calls.
func active(status types.TableStatus) bool {
	return status == types.TableStatusActive || status == types.TableStatusUpdating
}

// describe returns a table's description, or nil if it does not exist, and the date of the answer if it has one.
func describe(
	ctx context.Context, admin Admin, tableName string,
) (desc *types.TableDescription, date time.Time, err error) {
	out, err := admin.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &tableName})
	if _, ok := errors.AsType[*types.ResourceNotFoundException](err); ok {
		return nil, date, nil
	}
	if err != nil {
		return nil, date, table.Trouble("describe", tableName, "", err)
	}
	date, _ = awsmiddleware.GetServerTime(out.ResultMetadata)
	return out.Table, date, nil
}

// clock adds the finding about this machine's clock. DynamoDB's was between the date and a second later when the answer
// was made.
func (r *Report) clock(date, sent, received time.Time) {
	ahead := sent.Add(received.Sub(sent) / 2).Sub(date.Add(time.Second / 2))
	detail := "agrees with DynamoDB's"
	switch by := ahead.Abs().Round(time.Second); {
	case by > table.Slack && ahead > 0:
		detail = fmt.Sprintf("is %v ahead of DynamoDB's", by)
	case by > table.Slack:
		detail = fmt.Sprintf("is %v behind DynamoDB's", by)
	}
	r.add(
		"clock", ahead.Abs() <= table.SmallSkew, detail,
		"set this machine's clock: while it is off, weir decides nothing in the first minute and a half after a start",
	)
}

// shape adds the findings about keys and indexes.
func (r *Report) shape(desc *types.TableDescription) {
	kinds := make(map[string]types.ScalarAttributeType)
	for _, d := range desc.AttributeDefinitions {
		kinds[aws.ToString(d.AttributeName)] = d.AttributeType
	}
	have, want := keyText(desc.KeySchema, kinds), keyText(keySchema(table.AttrPK, table.AttrSK), nil)
	r.add("keys", have == want, differs(have, want), remedyOther)
	for _, ix := range tableIndexes {
		name := "index " + ix.name
		i := slices.IndexFunc(desc.GlobalSecondaryIndexes, func(d types.GlobalSecondaryIndexDescription) bool {
			return aws.ToString(d.IndexName) == ix.name
		})
		if i < 0 {
			r.add(name, false, "is missing", remedyOther)
			continue
		}
		d := desc.GlobalSecondaryIndexes[i]
		have, want := keyText(d.KeySchema, kinds), keyText(keySchema(ix.hash, ix.sort), nil)
		if p := d.Projection; p == nil || p.ProjectionType != types.ProjectionTypeKeysOnly {
			have += " with more than keys, so that every debit pays for it too"
		}
		if have != want {
			r.add(name, false, differs(have, want), remedyOther)
			continue
		}
		ok := d.IndexStatus == types.IndexStatusActive || d.IndexStatus == types.IndexStatusUpdating ||
			d.IndexStatus == ""
		r.add(name, ok, have+", "+strings.ToLower(string(d.IndexStatus)), remedyWait)
	}
}

func keySchema(hash, sort string) []types.KeySchemaElement {
	return []types.KeySchemaElement{
		{AttributeName: aws.String(hash), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String(sort), KeyType: types.KeyTypeRange},
	}
}

// keyText formats a key schema. Attributes without a given kind are strings.
func keyText(schema []types.KeySchemaElement, kinds map[string]types.ScalarAttributeType) string {
	var parts []string
	for _, e := range schema {
		kind := types.ScalarAttributeTypeS
		if k, ok := kinds[aws.ToString(e.AttributeName)]; ok {
			kind = k
		}
		parts = append(
			parts, strings.ToLower(string(e.KeyType))+" "+aws.ToString(e.AttributeName)+" ("+string(kind)+")",
		)
	}
	return strings.Join(parts, ", ")
}

func differs(have, want string) string {
	if have == want {
		return have
	}
	return have + ", not " + want
}

// ttlOf returns the attribute by which a table's items expire, or "".
func ttlOf(ctx context.Context, admin Admin, tableName string) (string, error) {
	out, err := admin.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &tableName})
	if err != nil {
		return "", table.Trouble("describe", tableName, "ttl", err)
	}
	if d := out.TimeToLiveDescription; d != nil &&
		(d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling) {
		return aws.ToString(d.AttributeName), nil
	}
	return "", nil
}
