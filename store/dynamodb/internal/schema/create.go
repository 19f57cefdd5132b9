package schema

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// CreateConfig describes the table to create. If the table exists, only PITR is changed.
type CreateConfig struct {
	Tags map[string]string
	// PITR turns on point-in-time recovery. If that is not available, it is a finding, not an error.
	PITR bool
	// PITRDays is how many days back the table can be restored, from 1 to 35. Defaults to DynamoDB's 35.
	PITRDays int
	// Stream turns on the table's stream, with old and new images.
	Stream bool
	// KMSKey is the ARN of the key that encrypts the table. Defaults to DynamoDB's own key.
	KMSKey string
	// DeletionProtection makes DynamoDB refuse to delete the table.
	DeletionProtection bool
}

// createTimeout bounds a creation whose caller does not. A table usually takes seconds.
const createTimeout = 5 * time.Minute

// Create creates an on-demand table, or completes one of weir's: it may be called again after a failure. It waits until
// the table can be used, and returns what [Check] finds then.
//
// A table that is not weir's is refused and left as it is, with an [*store.Error] that names what differs.
func Create(ctx context.Context, admin Admin, tableName string, cfg CreateConfig) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	if err := createTable(ctx, admin, tableName, &cfg); err != nil {
		return Report{Table: tableName}, err
	}
	desc, err := awaitActive(ctx, admin, tableName)
	if err != nil {
		return Report{Table: tableName}, err
	}
	if err := refuseForeign(ctx, admin, tableName, desc); err != nil {
		return Report{Table: tableName}, err
	}
	if err := enableTTL(ctx, admin, tableName); err != nil {
		return Report{Table: tableName}, err
	}
	var backups error
	if cfg.PITR {
		backups = enableBackups(ctx, admin, tableName, cfg.PITRDays)
	}
	// Last, because it is what lets a store open the table.
	if err := putVersion(ctx, admin, tableName); err != nil {
		return Report{Table: tableName}, err
	}
	r, err := Check(ctx, admin, tableName)
	switch {
	case !cfg.PITR:
	case backups == nil:
		r.add("backups", true, "point-in-time recovery is on", "")
	default:
		r.add("backups", false, backups.Error(), "turn point-in-time recovery on where it is offered")
	}
	return r, err
}

// createTable creates the table unless there is one of this name.
func createTable(ctx context.Context, admin Admin, tableName string, cfg *CreateConfig) error {
	desc, _, err := describe(ctx, admin, tableName)
	if err != nil || desc != nil {
		return err
	}
	in := &dynamodb.CreateTableInput{
		TableName: &tableName, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            keySchema(table.AttrPK, table.AttrSK),
		AttributeDefinitions: []types.AttributeDefinition{textAttribute(table.AttrPK), textAttribute(table.AttrSK)},
	}
	if cfg.DeletionProtection {
		in.DeletionProtectionEnabled = aws.Bool(true)
	}
	if cfg.Stream {
		in.StreamSpecification = &types.StreamSpecification{
			StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages,
		}
	}
	if cfg.KMSKey != "" {
		in.SSESpecification = &types.SSESpecification{
			Enabled: aws.Bool(true), SSEType: types.SSETypeKms, KMSMasterKeyId: &cfg.KMSKey,
		}
	}
	for _, ix := range tableIndexes {
		in.AttributeDefinitions = append(in.AttributeDefinitions, textAttribute(ix.hash), textAttribute(ix.sort))
		in.GlobalSecondaryIndexes = append(in.GlobalSecondaryIndexes, types.GlobalSecondaryIndex{
			IndexName: aws.String(ix.name), KeySchema: keySchema(ix.hash, ix.sort),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		})
	}
	for _, k := range slices.Sorted(maps.Keys(cfg.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(k), Value: aws.String(cfg.Tags[k])})
	}
	_, err = admin.CreateTable(ctx, in)
	if _, ok := errors.AsType[*types.ResourceInUseException](err); ok { // another process was first
		return nil
	}
	return table.Trouble("create", tableName, "", err)
}

func textAttribute(name string) types.AttributeDefinition {
	return types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS}
}

// awaitActive waits until the table and its indexes can be used.
func awaitActive(ctx context.Context, admin Admin, tableName string) (*types.TableDescription, error) {
	for try := 0; ; try++ {
		desc, _, err := describe(ctx, admin, tableName)
		if err != nil {
			return nil, err
		}
		if desc != nil && active(desc.TableStatus) && !slices.ContainsFunc(desc.GlobalSecondaryIndexes, creating) {
			return desc, nil
		}
		if err := pause(ctx, try); err != nil {
			return nil, table.Trouble("create", tableName, "", fmt.Errorf("not active yet: %w", err))
		}
	}
}

func creating(d types.GlobalSecondaryIndexDescription) bool {
	return d.IndexStatus == types.IndexStatusCreating
}

// pause waits between two checks of something that takes seconds.
func pause(ctx context.Context, try int) error {
	return smithytime.SleepWithContext(ctx, min(50*time.Millisecond<<min(try, 10), 2*time.Second))
}

// refuseForeign refuses a table that weir did not create.
func refuseForeign(ctx context.Context, admin Admin, tableName string, desc *types.TableDescription) error {
	refuse := func(why string) error {
		return &store.Error{Op: "create", Key: tableName, Err: fmt.Errorf("%w: %s", errNotOurs, why), Hint: hintNotOurs}
	}
	var r Report
	r.shape(desc)
	if !r.OK() {
		return refuse(r.wrong())
	}
	name, err := ttlOf(ctx, admin, tableName)
	if err != nil {
		return err
	}
	if name != "" && name != table.AttrTTL {
		return refuse("its items expire by attribute " + name + ", not " + table.AttrTTL)
	}
	sc, err := ReadSchema(ctx, admin, tableName)
	if err != nil || sc.Version > 0 && sc.Client <= SchemaVersion {
		return err
	}
	if sc.Version > 0 {
		return sc.refuse(tableName)
	}
	out, err := admin.Scan(
		ctx, &dynamodb.ScanInput{TableName: &tableName, Limit: aws.Int32(1), ConsistentRead: aws.Bool(true)},
	)
	if err != nil {
		return table.Trouble("create", tableName, "", err)
	}
	if len(out.Items) > 0 {
		return refuse("it holds items, but no schema version")
	}
	return nil
}

var errNotOurs = errors.New("the table exists and is not weir's")

func enableTTL(ctx context.Context, admin Admin, tableName string) error {
	name, err := ttlOf(ctx, admin, tableName)
	if err != nil || name != "" {
		return err
	}
	_, err = admin.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName: &tableName,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{
			AttributeName: aws.String(table.AttrTTL), Enabled: aws.Bool(true),
		},
	})
	return table.Trouble("create", tableName, "ttl", err)
}

// backupTries is how often the request for backups is repeated for a table that is too young for them: over about half
// a minute.
const backupTries = 20

func enableBackups(ctx context.Context, admin Admin, tableName string, days int) error {
	spec := &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)}
	if days > 0 {
		spec.RecoveryPeriodInDays = aws.Int32(int32(days))
	}
	for try := 0; ; try++ {
		_, err := admin.UpdateContinuousBackups(
			ctx, &dynamodb.UpdateContinuousBackupsInput{TableName: &tableName, PointInTimeRecoverySpecification: spec},
		)
		var early *types.ContinuousBackupsUnavailableException
		if !errors.As(err, &early) || try == backupTries || pause(ctx, try) != nil {
			return err
		}
	}
}

func putVersion(ctx context.Context, admin Admin, tableName string) error {
	it := table.VersionKey().Item()
	it[table.AttrNumber] = table.Num(SchemaVersion)
	_, err := admin.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &tableName, Item: it,
		ConditionExpression:      aws.String("attribute_not_exists(#p)"),
		ExpressionAttributeNames: map[string]string{"#p": table.AttrPK},
	})
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return nil
	}
	return table.Trouble("create", tableName, table.VersionKey().String(), err)
}
