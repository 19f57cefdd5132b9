// Package table makes the calls to a table, spells its keys, and keeps everything in it that is not a bucket: records,
// usage windows and leases on the stream.
package table

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/store"
)

// API is the part of DynamoDB's client that the store calls.
type API interface {
	// UpdateItem makes the one conditional write of a decision.
	UpdateItem(
		context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options),
	) (*dynamodb.UpdateItemOutput, error)
	// PutItem creates records that may be created only once.
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	// DeleteItem removes a bucket's item.
	DeleteItem(
		context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options),
	) (*dynamodb.DeleteItemOutput, error)
	// BatchGetItem reads records and buckets.
	BatchGetItem(
		context.Context, *dynamodb.BatchGetItemInput, ...func(*dynamodb.Options),
	) (*dynamodb.BatchGetItemOutput, error)
	// Query lists records and buckets.
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	// TransactWriteItems commits changes of the catalog.
	TransactWriteItems(
		context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options),
	) (*dynamodb.TransactWriteItemsOutput, error)
}

// Config configures calls.
type Config struct {
	Client API
	Table  string
	// WriteTimeout bounds one attempt of a call.
	WriteTimeout time.Duration
	// Now returns the time. Nil means the machine's clock, corrected by the server's.
	Now func() time.Time
	// Machine reads the machine's clocks. Defaults to those of this machine.
	Machine Machine
}

// Table makes calls to one table. It is safe for concurrent use.
type Table struct {
	cfg    Config
	closed atomic.Bool
	epochs epochs

	life    context.Context //nolint:containedctx // see End
	end     context.CancelFunc
	others  batch.Group
	begin   chan struct{} // holds one while the first answer is fetched
	looking atomic.Bool   // the server's dates are being watched

	// Skew keeps the time.
	Skew Skew
}

// New returns a table. It makes no call.
func New(cfg Config) *Table {
	t := &Table{cfg: cfg, begin: make(chan struct{}, 1)}
	t.life, t.end = context.WithCancel(context.Background())
	if t.Skew.machine = cfg.Machine; cfg.Machine == nil {
		t.Skew.machine = newMachine()
	}
	return t
}

// Catalog keeps records in a table.
type Catalog struct{ t *Table }

// NewCatalog returns the catalog of a table.
func NewCatalog(t *Table) *Catalog { return &Catalog{t} }

// Windows keeps usage windows in a table, and who reads the stream from which they are booked.
type Windows struct{ t *Table }

// NewWindows returns the usage windows of a table.
func NewWindows(t *Table) *Windows { return &Windows{t} }

// Name returns the table's name.
func (t *Table) Name() string { return t.cfg.Table }

// Client returns what makes the calls.
func (t *Table) Client() API { return t.cfg.Client }

// Clock returns the time: see [Skew].
func (t *Table) Clock() time.Time {
	if t.cfg.Now != nil {
		return t.cfg.Now()
	}
	return t.Skew.Now()
}

// Ready returns an error if the store is closed or ctx has ended.
func (t *Table) Ready(ctx context.Context) error {
	if t.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Closed reports whether the store is closed.
func (t *Table) Closed() bool { return t.closed.Load() }

// Close makes Ready fail from now on.
func (t *Table) Close() { t.closed.Store(true) }

// End ends what runs in the background. The last writes must have been made.
func (t *Table) End() {
	t.end()
	t.others.Close()
}

// Once makes the SDK attempt a call only once.
var Once = []func(*dynamodb.Options){func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }}
