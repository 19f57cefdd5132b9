// Package schema creates, checks and migrates the table.
package schema

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

const (
	// SchemaVersion is the version of the table layout that this version of weir writes.
	SchemaVersion = 1
	// OldestSchema is the oldest layout that this version of weir can read and write. Older tables need [Migrate]
	// first.
	OldestSchema = 1
)

const (
	hintUpgrade = "upgrade weir"
	hintMigrate = "weir aws upgrade brings the table to this weir's version"
	hintNotOurs = "name another table: this one is not weir's"
)

// Attributes of the schema version's record, besides AttrNumber.
const (
	attrClient = "min" // the lowest version that a client must support; absent: AttrNumber
	attrTarget = "to"  // the version that a migration under way leads to; absent: no migration
	attrCursor = "cp"  // PK that the migration has reached
	attrPlace  = "cs"  // and SK
)

// Schema is a table's statement about its layout.
type Schema struct {
	Version uint64 // 0: none; the table is not weir's, or its creation is not complete
	Client  uint64 // the lowest SchemaVersion of a client that may open it
	Target  uint64 // the version that a migration under way leads to; 0: no migration

	after map[string]types.AttributeValue // the key that the migration has reached
}

// ReadSchema returns a table's schema. It makes one read.
func ReadSchema(ctx context.Context, client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}, tableName string,
) (Schema, error) {
	out, err := client.GetItem(
		ctx,
		&dynamodb.GetItemInput{TableName: &tableName, Key: table.VersionKey().Item(), ConsistentRead: aws.Bool(true)},
	)
	if err != nil {
		return Schema{}, table.Trouble("read", tableName, table.VersionKey().String(), err)
	}
	if out.Item == nil {
		return Schema{}, nil
	}
	return parseSchema(tableName, out.Item)
}

func parseSchema(tableName string, attrs map[string]types.AttributeValue) (sc Schema, err error) {
	or := func(name string, otherwise uint64) (n uint64) {
		if n = otherwise; err == nil && attrs[name] != nil {
			n, err = table.Field(attrs, name, table.Unsigned)
		}
		return n
	}
	if sc.Version, err = table.Field(attrs, table.AttrNumber, table.Unsigned); err == nil && sc.Version == 0 {
		err = fmt.Errorf("attribute %s: no schema has version 0", table.AttrNumber)
	}
	sc.Client, sc.Target = or(attrClient, sc.Version), or(attrTarget, 0)
	if attrs[attrCursor] != nil {
		sc.after = map[string]types.AttributeValue{table.AttrPK: attrs[attrCursor], table.AttrSK: attrs[attrPlace]}
	}
	if err != nil {
		return Schema{}, table.Damaged(tableName, table.VersionKey(), err)
	}
	return sc, nil
}

// refuse returns the reason why this version of weir must not use a table of this layout, or nil.
func (sc Schema) refuse(tableName string) error {
	err := &store.Error{Op: "open", Key: tableName}
	switch {
	case sc.Client > SchemaVersion && sc.Client == sc.Version:
		err.Err = fmt.Errorf("the table's schema version is %d; this weir knows %d", sc.Version, SchemaVersion)
		err.Hint = hintUpgrade
	case sc.Client > SchemaVersion:
		err.Err = fmt.Errorf(
			"the table requires clients that know schema version %d; this weir knows %d", sc.Client, SchemaVersion,
		)
		err.Hint = hintUpgrade
	case sc.Version < OldestSchema:
		err.Err = fmt.Errorf(
			"the table's schema version is %d; this weir knows %d to %d", sc.Version, OldestSchema, SchemaVersion,
		)
		err.Hint = hintMigrate
	default:
		return nil
	}
	return err
}

// String describes the version and any migration under way.
func (sc Schema) String() string {
	text := fmt.Sprintf("version %d", sc.Version)
	if sc.Client != sc.Version {
		text += fmt.Sprintf(", for clients that know %d", sc.Client)
	}
	if sc.Target != 0 {
		text += fmt.Sprintf(", on its way to %d", sc.Target)
	}
	return text
}

// CheckVersion refuses a table whose layout this version of weir does not support. It costs one read.
func CheckVersion(ctx context.Context, t *table.Table) error {
	ctx, cancel := t.Within(ctx)
	defer cancel()
	found, err := t.BatchGet(ctx, []table.Key{table.VersionKey()})
	if err != nil {
		return err
	}
	attrs := found[table.VersionKey()]
	if attrs == nil {
		return &store.Error{
			Op: "open", Key: t.Name(), Err: errNoVersion,
			Hint: remedyCreate + " completes a table of weir's; or name another table",
		}
	}
	sc, err := parseSchema(t.Name(), attrs)
	if err != nil {
		return err
	}
	return sc.refuse(t.Name())
}

var errNoVersion = errors.New("the table has no schema version")
