package dynamodb

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

const (
	// SchemaVersion is the version of the table's layout that this weir writes.
	SchemaVersion = 1
	// OldestSchema is the oldest layout that it reads and writes, too. What is older needs [Migrate] first.
	OldestSchema = 1
)

// Attributes of the record of the schema version, beside attrNumber.
const (
	attrClient = "min" // the least version that a client must know; absent: attrNumber
	attrTarget = "to"  // the version to which a migration is under way; absent: none is
	attrCursor = "cp"  // PK up to which it has come
	attrPlace  = "cs"  // and SK
)

// Schema is what a table says about its layout.
type Schema struct {
	Version uint64 // 0: none, so it is no table of weir's, or one whose creation is not complete
	Client  uint64 // the least SchemaVersion of a client that may open it
	Target  uint64 // the version to which a migration is under way; 0: none is

	after map[string]types.AttributeValue // up to where it has come
}

// ReadSchema returns what a table says about its layout. It makes one read.
func ReadSchema(ctx context.Context, client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}, table string,
) (Schema, error) {
	out, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: versionKey().item(), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return Schema{}, trouble("read", table, versionKey().String(), err)
	}
	if out.Item == nil {
		return Schema{}, nil
	}
	return parseSchema(table, out.Item)
}

func parseSchema(table string, attrs map[string]types.AttributeValue) (sc Schema, err error) {
	or := func(name string, otherwise uint64) (n uint64) {
		if n = otherwise; err == nil && attrs[name] != nil {
			n, err = field(attrs, name, unsigned)
		}
		return n
	}
	if sc.Version, err = field(attrs, attrNumber, unsigned); err == nil && sc.Version == 0 {
		err = fmt.Errorf("attribute %s: no schema has version 0", attrNumber)
	}
	sc.Client, sc.Target = or(attrClient, sc.Version), or(attrTarget, 0)
	if attrs[attrCursor] != nil {
		sc.after = map[string]types.AttributeValue{attrPK: attrs[attrCursor], attrSK: attrs[attrPlace]}
	}
	if err != nil {
		return Schema{}, damaged(table, versionKey(), err)
	}
	return sc, nil
}

// refuse returns why this weir must not use a table of the layout, or nil.
func (sc Schema) refuse(table string) error {
	err := &store.Error{Op: "open", Key: table}
	switch {
	case sc.Client > SchemaVersion && sc.Client == sc.Version:
		err.Err, err.Hint = fmt.Errorf("the table's schema version is %d; this weir knows %d", sc.Version, SchemaVersion), hintUpgrade
	case sc.Client > SchemaVersion:
		err.Err = fmt.Errorf("the table wants clients that know schema version %d; this weir knows %d", sc.Client, SchemaVersion)
		err.Hint = hintUpgrade
	case sc.Version < OldestSchema:
		err.Err = fmt.Errorf("the table's schema version is %d; this weir knows %d to %d", sc.Version, OldestSchema, SchemaVersion)
		err.Hint = hintMigrate
	default:
		return nil
	}
	return err
}

// String tells the version, and what is under way.
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

// checkVersion refuses a table that is not of a layout that this weir knows. It costs one read.
func (s *Store) checkVersion(ctx context.Context) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	found, err := s.batchGet(ctx, []primary{versionKey()})
	if err != nil {
		return err
	}
	attrs := found[versionKey()]
	if attrs == nil {
		return &store.Error{Op: "open", Key: s.cfg.Table, Err: errNoVersion, Hint: remedyCreate + " completes a table of weir's; or name another"}
	}
	sc, err := parseSchema(s.cfg.Table, attrs)
	if err != nil {
		return err
	}
	return sc.refuse(s.cfg.Table)
}

var errNoVersion = errors.New("the table has no schema version")
