package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/booking"
	"github.com/weirlimits/weir/store/dynamodb/internal/schema"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// The versions of the table layout.
const (
	// SchemaVersion is the version that this version of weir writes.
	SchemaVersion = schema.SchemaVersion
	// OldestSchema is the oldest version that this version of weir can read and write. Older tables need [Migrate]
	// first.
	OldestSchema = schema.OldestSchema
)

type (
	// Admin is the part of DynamoDB's client that [Create] and [Check] call.
	Admin = schema.Admin
	// CreateConfig describes the table to create. If the table exists, only PITR is changed.
	CreateConfig = schema.CreateConfig
	// Report is the result of all checks of a table.
	Report = schema.Report
	// Finding is the result of one check of a table.
	Finding = schema.Finding
	// Schema is a table's statement about its layout.
	Schema = schema.Schema
	// Migrator is the part of DynamoDB's client that [Migrate] calls. With a client that repeats throttled calls, one
	// run is enough.
	Migrator = schema.Migrator
	// MigrateConfig configures [Migrate].
	MigrateConfig = schema.MigrateConfig
	// Migrated is what [Migrate] did; with DryRun, what it would do.
	Migrated = schema.Migrated
	// StreamLease is the reader of a shard of the table's stream, and how far it has come.
	StreamLease = table.StreamLease
	// StreamRecord is one record of the table's stream.
	StreamRecord = booking.StreamRecord
	// Ledger books usage from the records of the table's stream. It is safe for concurrent use. Any number of ledgers
	// may book the same records at the same time, in any order: each record is counted once.
	Ledger = booking.Ledger
	// Metering is what a ledger books. The zero value books all windows of all resources.
	Metering = table.Metering
	// Booked is the result of [Ledger.Book].
	Booked = booking.Booked
	// Hot is a shard of a bucket that is written too often: at more than four fifths of the rate that one item accepts,
	// for at least two seconds.
	Hot = booking.Hot
)

// ErrPoison reports a record of the stream that can never be read. Usually, an item was edited by hand.
var ErrPoison = booking.ErrPoison

// Concerns reports whether an item with a range key may affect usage. Records of other items need not be booked.
func Concerns(sortKey types.AttributeValue) bool { return booking.Concerns(sortKey) }

// IsStreamLease reports whether an item with a partition key is a [StreamLease].
func IsStreamLease(partitionKey types.AttributeValue) bool { return table.IsStreamLease(partitionKey) }

// Create creates an on-demand table, or completes one of weir's: it may be called again after a failure. It waits until
// the table can be used, and returns what [Check] finds then.
//
// A table that is not weir's is refused and left as it is, with an [*store.Error] that names what differs.
func Create(ctx context.Context, admin Admin, name string, cfg CreateConfig) (Report, error) {
	return schema.Create(ctx, admin, name, cfg)
}

// Check inspects a table without changing anything: whether it exists, has weir's keys and indexes, deletes expired
// items, and has a layout that this version of weir supports; and whether this machine's clock is right. Problems are
// reported as findings. An error means that the table could not be inspected.
func Check(ctx context.Context, admin Admin, name string) (Report, error) {
	return schema.Check(ctx, admin, name)
}

// ReadSchema returns a table's schema. It makes one read.
func ReadSchema(ctx context.Context, client interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
}, name string,
) (Schema, error) {
	return schema.ReadSchema(ctx, client, name)
}

// Migrate brings a table's layout to [SchemaVersion], item by item. Its writes assert what they depend on, so others
// may use the table meanwhile. It saves its progress with each page. If it was stopped, call it again: it continues
// there. Several concurrent runs are a waste, but do no harm.
//
// A table of a later version is left as it is, and so is one without a version: the error is a [*store.Error].
func Migrate(ctx context.Context, client Migrator, name string, cfg MigrateConfig) (Migrated, error) {
	return schema.Migrate(ctx, client, name, cfg, schema.Migrations, SchemaVersion)
}

// AuditKey returns the key of an audit event, given the keys of its item, for instance in a record of the table's
// stream. ok is false for any other item.
func AuditKey(pk, sk string) (k store.Key, ok bool) { return table.AuditKey(pk, sk) }

// ConfigKey returns the key of an entity, limits or a namespace, given the keys of its item, for instance in a record
// of the table's stream. ok is false for any other item.
func ConfigKey(pk, sk string) (k store.Key, ok bool) { return table.ConfigKey(pk, sk) }
