package dynamotest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/testkit/dynamotest/sizes"
)

type table struct {
	name    string
	key     schema
	indexes map[string]*index
	items   map[string]item // by schema.id; items are never modified
	desc    *types.TableDescription
	ttl     string // the attribute
	changed func(table string, old, replaced map[string]types.AttributeValue)
}

// notify reports a change to the table's listener.
func (t *table) notify(old, replaced item) {
	if t.changed != nil && (old != nil || replaced != nil) {
		t.changed(t.name, old, replaced)
	}
}

// schema is the key of a table or an index: a hash and perhaps a range.
type schema struct {
	names []string
	types map[string]string
}

// index is a global secondary index.
type index struct {
	key        schema
	base       schema
	projection types.Projection
}

// id returns a string that identifies an item by its key.
func (s schema) id(it item) string {
	var b strings.Builder
	for _, name := range s.names {
		switch v := it[name].(type) {
		case *types.AttributeValueMemberS:
			b.WriteString("S" + v.Value)
		case *types.AttributeValueMemberN:
			b.WriteString("N" + v.Value)
		case *types.AttributeValueMemberB:
			b.WriteString("B" + string(v.Value))
		}
		b.WriteString("\x00\xff") // not valid UTF-8
	}
	return b.String()
}

// compare orders items by hash, then range.
func (s schema) compare(a, b item) int {
	for _, name := range s.names {
		if order, _ := compare(a[name], b[name]); order != 0 {
			return order
		}
	}
	return 0
}

// check rejects a value that may not be in a key.
func (s schema) check(name string, v types.AttributeValue) error {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		if v.Value == "" {
			return invalid(
				"One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain "+
					"an empty string value. Key: %s",
				name,
			)
		}
	case *types.AttributeValueMemberB:
		if len(v.Value) == 0 {
			return invalid(
				"One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain "+
					"an empty binary value. Key: %s",
				name,
			)
		}
	}
	if v != nil && kind(v) == s.types[name] {
		return s.checkSize(name, v)
	}
	return invalid("One or more parameter values were invalid: missing the key %s, or type mismatch", name)
}

// checkSize rejects a value that is too long for a key.
func (s schema) checkSize(name string, v types.AttributeValue) error {
	what, most := "hashkey", sizes.MaxHash
	if name != s.names[0] {
		what, most = "range key", sizes.MaxRange
	}
	if sizes.Value(v) > most {
		return invalid("One or more parameter values were invalid: Size of %s has exceeded the maximum size limit of "+
			"%d bytes", what, most)
	}
	return nil
}

// of returns the key of an item.
func (s schema) of(it item) item {
	key := make(item, len(s.names))
	for _, name := range s.names {
		key[name] = it[name]
	}
	return key
}

// lookup returns a key as it is stored. It rejects attributes that are not part of the key.
func (t *table) lookup(key item) (item, error) {
	key, err := normalItem(key)
	if err != nil {
		return nil, err
	}
	if len(key) != len(t.key.names) {
		return nil, invalid("The provided key element does not match the schema")
	}
	for _, name := range t.key.names {
		if err := t.key.check(name, key[name]); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// admit rejects an item that may not be in the table.
func (t *table) admit(it item) error {
	for _, name := range t.key.names {
		if err := t.key.check(name, it[name]); err != nil {
			return err
		}
	}
	for _, idx := range t.indexes {
		for _, name := range idx.key.names {
			if v := it[name]; v != nil {
				if err := idx.key.check(name, v); err != nil {
					return err
				}
			}
		}
	}
	if ItemSize(it) > sizes.MaxItem {
		return invalid("Item size has exceeded the maximum allowed size")
	}
	return nil
}

// entry returns an index's entry for an item, or nil if there is none.
func (x *index) entry(it item) item {
	for _, name := range x.key.names {
		if it[name] == nil {
			return nil
		}
	}
	if x.projection.ProjectionType == types.ProjectionTypeAll {
		return it
	}
	out := make(item)
	for _, name := range slices.Concat(x.key.names, x.base.names, x.projection.NonKeyAttributes) {
		if v := it[name]; v != nil {
			out[name] = v
		}
	}
	return out
}

func (f *Fake) table(name *string) (*table, error) {
	if t := f.tables[aws.ToString(name)]; t != nil {
		return t, nil
	}
	return nil, noTable(aws.ToString(name))
}

func (f *Fake) createTable(in *dynamodb.CreateTableInput) (*dynamodb.CreateTableOutput, error) {
	name := aws.ToString(in.TableName)
	if f.tables[name] != nil {
		return nil, &types.ResourceInUseException{Message: new("Table already exists: " + name)}
	}
	attributes := newDefinitions(in.AttributeDefinitions)
	key, err := attributes.schema(in.KeySchema)
	if err != nil {
		return nil, err
	}
	t := &table{
		name: name, key: key, indexes: make(map[string]*index), items: make(map[string]item), changed: f.Changed,
	}
	t.desc = &types.TableDescription{
		TableName: &name, TableStatus: types.TableStatusActive, KeySchema: in.KeySchema,
		AttributeDefinitions: in.AttributeDefinitions, TableArn: new(arnPrefix + name),
		BillingModeSummary: &types.BillingModeSummary{BillingMode: in.BillingMode},
	}
	for i := range in.GlobalSecondaryIndexes {
		if err := t.addIndex(&in.GlobalSecondaryIndexes[i], attributes); err != nil {
			return nil, err
		}
	}
	if len(attributes.unused) > 0 {
		return nil, invalid(
			"Number of attributes in KeySchema does not exactly match number of attributes defined in " +
				"AttributeDefinitions",
		)
	}
	if f.tables == nil {
		f.tables = make(map[string]*table)
	}
	f.tables[name] = t
	return &dynamodb.CreateTableOutput{TableDescription: t.description()}, nil
}

// definitions are the types of the attributes that keys may have, by name, and those that no key has yet.
type definitions struct{ types, unused map[string]string }

func newDefinitions(all []types.AttributeDefinition) definitions {
	defined := make(map[string]string)
	for _, d := range all {
		defined[aws.ToString(d.AttributeName)] = string(d.AttributeType)
	}
	return definitions{defined, maps.Clone(defined)}
}

// schema returns the key of these elements.
func (d definitions) schema(elements []types.KeySchemaElement) (schema, error) {
	s := schema{types: d.types}
	for i, e := range elements {
		attribute := aws.ToString(e.AttributeName)
		if d.types[attribute] == "" || len(attribute) > sizes.MaxKeyName || i > 1 ||
			(e.KeyType == types.KeyTypeHash) != (i == 0) {
			return s, invalid("Invalid KeySchema")
		}
		delete(d.unused, attribute)
		s.names = append(s.names, attribute)
	}
	if len(s.names) == 0 {
		return s, invalid("Invalid KeySchema")
	}
	return s, nil
}

func (t *table) addIndex(g *types.GlobalSecondaryIndex, attributes definitions) error {
	key, err := attributes.schema(g.KeySchema)
	if err != nil {
		return err
	}
	name := aws.ToString(g.IndexName)
	if len(name) < 3 || g.Projection == nil {
		return invalid("an index needs a name of at least 3 characters and a projection")
	}
	t.indexes[name] = &index{key: key, base: t.key, projection: *g.Projection}
	t.desc.GlobalSecondaryIndexes = append(t.desc.GlobalSecondaryIndexes, types.GlobalSecondaryIndexDescription{
		IndexName: g.IndexName, IndexStatus: types.IndexStatusActive, KeySchema: g.KeySchema,
		Projection: g.Projection,
		IndexArn:   new(*t.desc.TableArn + "/index/" + name),
	})
	return nil
}

const arnPrefix = "arn:aws:dynamodb:us-east-1:000000000000:table/"

func (t *table) description() *types.TableDescription {
	desc := *t.desc
	desc.ItemCount = new(int64(len(t.items)))
	slices.SortFunc(desc.GlobalSecondaryIndexes, func(a, b types.GlobalSecondaryIndexDescription) int {
		return cmp.Compare(*a.IndexName, *b.IndexName)
	})
	return &desc
}

func (f *Fake) describeTable(in *dynamodb.DescribeTableInput) (*dynamodb.DescribeTableOutput, error) {
	t, err := f.table(in.TableName)
	if err != nil {
		return nil, err
	}
	return &dynamodb.DescribeTableOutput{Table: t.description()}, nil
}

func (f *Fake) updateTimeToLive(in *dynamodb.UpdateTimeToLiveInput) (*dynamodb.UpdateTimeToLiveOutput, error) {
	t, err := f.table(in.TableName)
	if err != nil {
		return nil, err
	}
	spec := in.TimeToLiveSpecification
	switch enabled := aws.ToBool(spec.Enabled); {
	case enabled == (t.ttl != ""):
		return nil, invalid("TimeToLive is already %s", map[bool]string{true: "enabled", false: "disabled"}[enabled])
	case enabled:
		t.ttl = aws.ToString(spec.AttributeName)
	default:
		t.ttl = ""
	}
	return &dynamodb.UpdateTimeToLiveOutput{TimeToLiveSpecification: spec}, nil
}

func (f *Fake) describeTimeToLive(in *dynamodb.DescribeTimeToLiveInput) (*dynamodb.DescribeTimeToLiveOutput, error) {
	t, err := f.table(in.TableName)
	if err != nil {
		return nil, err
	}
	desc := &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusDisabled}
	if t.ttl != "" {
		desc = &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusEnabled, AttributeName: new(t.ttl)}
	}
	return &dynamodb.DescribeTimeToLiveOutput{TimeToLiveDescription: desc}, nil
}

func (f *Fake) updateContinuousBackups(in *dynamodb.UpdateContinuousBackupsInput) (
	*dynamodb.UpdateContinuousBackupsOutput, error,
) {
	if _, err := f.table(in.TableName); err != nil {
		return nil, &types.TableNotFoundException{Message: new(err.Error())}
	}
	return &dynamodb.UpdateContinuousBackupsOutput{ContinuousBackupsDescription: &types.ContinuousBackupsDescription{
		ContinuousBackupsStatus: types.ContinuousBackupsStatusEnabled,
	}}, nil
}
