package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Migrator is the part of DynamoDB's client that [Migrate] calls. With a client that repeats throttled calls, one run
// is enough.
type Migrator interface {
	// GetItem reads the schema version, and items that another client has just changed.
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	// Scan reads the table.
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	// UpdateItem changes items, and the schema version.
	UpdateItem(
		context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options),
	) (*dynamodb.UpdateItemOutput, error)
}

// MigrateConfig configures [Migrate].
type MigrateConfig struct {
	// DryRun reads everything and writes nothing.
	DryRun bool
	// Progress, if not nil, is called after each page.
	Progress func(Migrated)
}

// Migrated is what [Migrate] did; with DryRun, what it would do.
type Migrated struct {
	From, To uint64
	Step     string // what the current migration does; "" if there was none to make
	Read     int64  // number of items read
	Changed  int64  // number of items changed
}

// Migration brings a table from one version to the next, while clients of both read it. Changed items must be right for
// every client that may still have the table open. If that is impossible, min must be raised, and the operator told to
// stop the others first.
type Migration struct {
	From uint64
	Min  uint64 // from its start, the lowest version that a client must support; 0: as before
	What string
	// Change returns what an item must have instead, with nil for attributes to remove; nothing for an item that stays
	// as it is. The write asserts what change depends on: all that it changes, and what is named in by. If that has
	// changed, Change is called again.
	Change func(it map[string]types.AttributeValue) (to map[string]types.AttributeValue, by []string, err error)
}

// Migrations are in the order of From. There have been none: everything that any version of weir wrote is read as it
// is.
var Migrations []Migration

// Migrate brings a table's layout to a target version, item by item. Its writes assert what they depend on, so others
// may use the table meanwhile. It saves its progress with each page, and continues there if it is called again.
//
// A table of a later version is left as it is, and so is one without a version: the error is a [*store.Error].
func Migrate(
	ctx context.Context, client Migrator, tableName string, cfg MigrateConfig, steps []Migration, target uint64,
) (done Migrated, err error) {
	sc, err := ReadSchema(ctx, client, tableName)
	if err != nil {
		return done, err
	}
	done = Migrated{From: sc.Version, To: sc.Version}
	switch {
	case sc.Version == 0:
		return done, &store.Error{Op: "migrate", Key: tableName, Err: errNoVersion, Hint: table.HintCreate}
	case max(sc.Version, sc.Client, sc.Target) > target:
		err := fmt.Errorf("the table's schema is %s; this weir knows %d", sc, target)
		return done, &store.Error{Op: "migrate", Key: tableName, Err: err, Hint: hintUpgrade}
	}
	run := migrating{client: client, tableName: tableName, cfg: cfg, done: &done}
	for done.To < target {
		i := slices.IndexFunc(steps, func(m Migration) bool { return m.From == done.To })
		if i < 0 {
			err := fmt.Errorf("no migration leads from schema version %d to %d", done.To, target)
			return done, &store.Error{Op: "migrate", Key: tableName, Err: err, Hint: "use a version of weir in between"}
		}
		run.m, done.Step = &steps[i], steps[i].What
		if err := run.step(ctx, sc); err != nil {
			return done, err
		}
		done.To++
		if sc, err = ReadSchema(ctx, client, tableName); err != nil {
			return done, err
		}
	}
	return done, nil
}

// migrating is one run of [Migrate].
type migrating struct {
	client    Migrator
	tableName string
	cfg       MigrateConfig
	done      *Migrated
	m         *Migration
}

// step makes one migration, or the rest of it.
func (r *migrating) step(ctx context.Context, sc Schema) error {
	next := table.Num(r.m.From + 1)
	begin := map[string]types.AttributeValue{attrTarget: next, attrClient: table.Num(max(r.m.Min, sc.Client))}
	if err := r.mark(ctx, begin); err != nil {
		return err
	}
	in := &dynamodb.ScanInput{TableName: &r.tableName, ConsistentRead: aws.Bool(true)}
	if sc.Target == r.m.From+1 {
		in.ExclusiveStartKey = sc.after
	}
	for {
		page, err := r.client.Scan(ctx, in)
		if err != nil {
			return table.Trouble("migrate", r.tableName, "", err)
		}
		for _, it := range page.Items {
			if err := r.item(ctx, it); err != nil {
				return err
			}
		}
		if r.cfg.Progress != nil {
			r.cfg.Progress(*r.done)
		}
		at := page.LastEvaluatedKey
		if in.ExclusiveStartKey = at; len(at) == 0 {
			return r.mark(
				ctx,
				map[string]types.AttributeValue{
					table.AttrNumber: next, attrTarget: nil, attrCursor: nil, attrPlace: nil,
				},
			)
		}
		reached := map[string]types.AttributeValue{attrCursor: at[table.AttrPK], attrPlace: at[table.AttrSK]}
		if err := r.mark(ctx, reached); err != nil {
			return err
		}
	}
}

// mark records in the schema version how far the migration is. It is no error if another run has already completed it.
func (r *migrating) mark(ctx context.Context, to map[string]types.AttributeValue) error {
	if r.cfg.DryRun {
		return nil
	}
	at := map[string]types.AttributeValue{table.AttrNumber: table.Num(r.m.From)}
	_, err := r.client.UpdateItem(ctx, r.update(table.VersionKey(), at, to, []string{table.AttrNumber}))
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return nil
	}
	return table.Trouble("migrate", r.tableName, table.VersionKey().String(), err)
}

// itemTries is how often the change of an item is repeated if others keep changing that item.
const itemTries = 20

// item changes one item, unless it stays as it is.
func (r *migrating) item(ctx context.Context, it map[string]types.AttributeValue) error {
	r.done.Read++
	key, err := table.KeyOf(it)
	if err != nil || key == table.VersionKey() {
		return err
	}
	for try := 0; ; try++ {
		to, by, err := r.m.Change(it)
		switch {
		case err != nil:
			return table.Damaged(r.tableName, key, err)
		case len(to) == 0:
			return nil
		case r.cfg.DryRun:
			r.done.Changed++
			return nil
		}
		_, err = r.client.UpdateItem(ctx, r.update(key, it, to, slices.AppendSeq(by, maps.Keys(to))))
		var changed *types.ConditionalCheckFailedException
		switch {
		case err == nil:
			r.done.Changed++
			return nil
		case !errors.As(err, &changed) || try == itemTries:
			return table.Trouble("migrate", r.tableName, key.String(), err)
		}
		out, err := r.client.GetItem(
			ctx, &dynamodb.GetItemInput{TableName: &r.tableName, Key: key.Item(), ConsistentRead: aws.Bool(true)},
		)
		if err != nil {
			return table.Trouble("migrate", r.tableName, key.String(), err)
		}
		if it = out.Item; it == nil { // deleted meanwhile
			return nil
		}
	}
}

// update changes an item if what is asserted is still as it was.
func (r *migrating) update(
	key table.Key, was, to map[string]types.AttributeValue, asserted []string,
) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName: &r.tableName, Key: key.Item(),
		ExpressionAttributeNames:  map[string]string{"#pk": table.AttrPK},
		ExpressionAttributeValues: map[string]types.AttributeValue{},
	}
	var set, remove []string
	where := []string{"attribute_exists(#pk)"}
	bind := func(kind string, i int, name string, v types.AttributeValue) (attr, value string) {
		attr, value = fmt.Sprintf("#%s%d", kind, i), fmt.Sprintf(":%s%d", kind, i)
		in.ExpressionAttributeNames[attr] = name
		if v != nil {
			in.ExpressionAttributeValues[value] = v
		}
		return attr, value
	}
	for i, name := range slices.Sorted(maps.Keys(to)) {
		if attr, value := bind("to", i, name, to[name]); to[name] == nil {
			remove = append(remove, attr)
		} else {
			set = append(set, attr+" = "+value)
		}
	}
	for i, name := range asserted {
		if attr, value := bind("was", i, name, was[name]); was[name] == nil {
			where = append(where, "attribute_not_exists("+attr+")")
		} else {
			where = append(where, attr+" = "+value)
		}
	}
	var changes []string
	if len(set) > 0 {
		changes = append(changes, "SET "+strings.Join(set, ", "))
	}
	if len(remove) > 0 {
		changes = append(changes, "REMOVE "+strings.Join(remove, ", "))
	}
	if len(in.ExpressionAttributeValues) == 0 {
		in.ExpressionAttributeValues = nil // an empty one is refused
	}
	in.UpdateExpression = aws.String(strings.Join(changes, " "))
	in.ConditionExpression = aws.String(strings.Join(where, " AND "))
	return in
}
