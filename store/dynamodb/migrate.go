package dynamodb

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
)

// Migrator is what [Migrate] calls of DynamoDB's client. A client that repeats throttled calls finishes in one run.
type Migrator interface {
	// GetItem reads the schema version, and items that somebody else has just changed.
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	// Scan reads the table.
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	// UpdateItem changes items, and the schema version.
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// MigrateConfig configures [Migrate].
type MigrateConfig struct {
	// DryRun reads all and writes nothing.
	DryRun bool
	// Progress, if not nil, is told after each page.
	Progress func(Migrated)
}

// Migrated is what [Migrate] did; with DryRun, what it would do.
type Migrated struct {
	From, To uint64
	Step     string // what the migration at hand does; "" where there was none to make
	Read     int64  // items
	Changed  int64  // of them
}

// migration brings a table from one version to the next. It is read by clients of both: what is changed must be right
// for whoever may still have the table open, or min be raised, and the operator be told to end the others first.
type migration struct {
	from uint64
	min  uint64 // from its beginning, the least version that a client must know; 0: as before
	what string
	// change returns what an item is to have instead, with nil for what is to go; nothing for one that stays. What it
	// goes by is asserted: all of what it changes, and what is named in by. It is asked again when that had changed.
	change func(it map[string]types.AttributeValue) (to map[string]types.AttributeValue, by []string, err error)
}

// migrations are in the order of from. There has been none: everything that any weir wrote is read as it is.
var migrations []migration

// Migrate brings a table's layout to [SchemaVersion], item by item, by writes that assert what they go by: others may
// use the table meanwhile. What it has done it saves with each page, so that it may be called again after it was
// stopped, and goes on there; several at once are a waste, and no harm.
//
// A table of a later version is left as it is, and so is one that has none: the error is a [*store.Error].
func Migrate(ctx context.Context, client Migrator, table string, cfg MigrateConfig) (Migrated, error) {
	return migrate(ctx, client, table, cfg, migrations, SchemaVersion)
}

func migrate(ctx context.Context, client Migrator, table string, cfg MigrateConfig, steps []migration, target uint64) (done Migrated, err error) {
	sc, err := ReadSchema(ctx, client, table)
	if err != nil {
		return done, err
	}
	done = Migrated{From: sc.Version, To: sc.Version}
	switch {
	case sc.Version == 0:
		return done, &store.Error{Op: "migrate", Key: table, Err: errNoVersion, Hint: hintCreate}
	case max(sc.Version, sc.Client, sc.Target) > target:
		err := fmt.Errorf("the table is of %s; this weir knows %d", sc, target)
		return done, &store.Error{Op: "migrate", Key: table, Err: err, Hint: hintUpgrade}
	}
	run := migrating{client: client, table: table, cfg: cfg, done: &done}
	for done.To < target {
		i := slices.IndexFunc(steps, func(m migration) bool { return m.from == done.To })
		if i < 0 {
			err := fmt.Errorf("nothing leads from schema version %d to %d", done.To, target)
			return done, &store.Error{Op: "migrate", Key: table, Err: err, Hint: "use a weir in between"}
		}
		run.m, done.Step = &steps[i], steps[i].what
		if err := run.step(ctx, sc); err != nil {
			return done, err
		}
		done.To++
		if sc, err = ReadSchema(ctx, client, table); err != nil {
			return done, err
		}
	}
	return done, nil
}

// migrating is one run of [Migrate].
type migrating struct {
	client Migrator
	table  string
	cfg    MigrateConfig
	done   *Migrated
	m      *migration
}

// step makes one migration, or the rest of it.
func (r *migrating) step(ctx context.Context, sc Schema) error {
	next := num(r.m.from + 1)
	begin := map[string]types.AttributeValue{attrTarget: next, attrClient: num(max(r.m.min, sc.Client))}
	if err := r.mark(ctx, begin); err != nil {
		return err
	}
	in := &dynamodb.ScanInput{TableName: &r.table, ConsistentRead: aws.Bool(true)}
	if sc.Target == r.m.from+1 {
		in.ExclusiveStartKey = sc.after
	}
	for {
		page, err := r.client.Scan(ctx, in)
		if err != nil {
			return trouble("migrate", r.table, "", err)
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
			return r.mark(ctx, map[string]types.AttributeValue{attrNumber: next, attrTarget: nil, attrCursor: nil, attrPlace: nil})
		}
		if err := r.mark(ctx, map[string]types.AttributeValue{attrCursor: at[attrPK], attrPlace: at[attrSK]}); err != nil {
			return err
		}
	}
}

// mark notes on the schema version how far the migration is. That another run has ended it already is fine.
func (r *migrating) mark(ctx context.Context, to map[string]types.AttributeValue) error {
	if r.cfg.DryRun {
		return nil
	}
	at := map[string]types.AttributeValue{attrNumber: num(r.m.from)}
	_, err := r.client.UpdateItem(ctx, r.update(versionKey(), at, to, []string{attrNumber}))
	var ended *types.ConditionalCheckFailedException
	if errors.As(err, &ended) {
		return nil
	}
	return trouble("migrate", r.table, versionKey().String(), err)
}

// itemTries is how often an item is tried that others keep changing.
const itemTries = 20

// item changes one item, unless it stays as it is.
func (r *migrating) item(ctx context.Context, it map[string]types.AttributeValue) error {
	r.done.Read++
	key, err := primaryOf(it)
	if err != nil || key == versionKey() {
		return err
	}
	for try := 0; ; try++ {
		to, by, err := r.m.change(it)
		switch {
		case err != nil:
			return damaged(r.table, key, err)
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
			return trouble("migrate", r.table, key.String(), err)
		}
		out, err := r.client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &r.table, Key: key.item(), ConsistentRead: aws.Bool(true)})
		if err != nil {
			return trouble("migrate", r.table, key.String(), err)
		}
		if it = out.Item; it == nil { // deleted meanwhile
			return nil
		}
	}
}

// update changes an item where what is asserted is as it was.
func (r *migrating) update(key primary, was, to map[string]types.AttributeValue, asserted []string) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName: &r.table, Key: key.item(),
		ExpressionAttributeNames: map[string]string{"#pk": attrPK}, ExpressionAttributeValues: map[string]types.AttributeValue{},
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
	in.UpdateExpression, in.ConditionExpression = aws.String(strings.Join(changes, " ")), aws.String(strings.Join(where, " AND "))
	return in
}
