// Package dynamodb keeps buckets and the catalog in one DynamoDB table, for any number of processes. A debit is one
// conditional UpdateItem. Its response, admitted or refused, carries the whole item, so an item is not read before it
// is written. A take of several buckets is a write for each of them, not one step.
//
// The layout of the table is described in docs/format/dynamodb.md.
package dynamodb

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/batch"
	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/schema"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// API is the part of DynamoDB's client that the store calls.
type API = table.API

// Config configures a [Store]. Client and Table are required.
type Config struct {
	// Client makes the calls. [Tune] makes it keep as many connections as there are concurrent calls.
	Client API
	// Table is the name of the table; see [Create].
	Table string

	// RejectionTTL is how long a refusal is repeated from memory, without a call. A return by another process may go
	// unnoticed for that long. Negative: never. Defaults to 250 ms.
	RejectionTTL time.Duration
	// Guard is the fraction of a burst, at most 0.1, that a write may debit beyond the request if other processes also
	// write to the bucket and it is nearly full. This avoids repeating writes that guessed the level wrong. The total
	// excess stays within ten times Guard, or a tenth of the burst if that is more, and comes back as the limit
	// refills. Negative: no guard, and a take in a crowded bucket is refused only by what the item showed. Defaults to
	// 0.01.
	Guard float64
	// Prefetch lets writes debit ahead. Off by default.
	Prefetch Prefetch
	// Retention is the minimum time for which an item outlives its last write. An item always lives until its bucket is
	// full, and a day longer. Defaults to that.
	Retention time.Duration
	// MaxShards is the number of items into which a bucket may be split if it is written more often than one item can
	// be: a power of two, at most 64. 1: never split. Defaults to 64.
	MaxShards int
	// MaxBuckets is the number of buckets whose state the process remembers. One with a single limit takes some 3 KiB,
	// with the records that are cached for it. Defaults to 65,536.
	MaxBuckets int

	// CallTimeout bounds one call. Defaults to 1 s.
	CallTimeout time.Duration
	// WriteTimeout bounds all attempts of one write. Defaults to 2 s.
	WriteTimeout time.Duration

	// Now returns the time. It must not be far off: it is not compared with the server's. Defaults to the machine's
	// monotonic clock, corrected by the dates of DynamoDB's answers. While these contradict the machine's clock, calls
	// that debit or return tokens fail.
	Now func() time.Time
}

// Prefetch configures debiting ahead. The surplus that a write debits beyond the request serves later callers of the
// process without a call. If it is not used, it is returned, unless other processes keep writing to the bucket. A crash
// loses at most one surplus per bucket.
//
// With prefetch, the admitted total may exceed the limits by what other processes returned within the last For, and by
// nothing else.
type Prefetch struct {
	// Share is the largest part of the available tokens that a write may debit ahead: above 0, up to 1. 0: off.
	Share float64
	// For is how long a surplus is kept, at most 1 s. Defaults to 100 ms.
	For time.Duration
}

// Store is a store in a DynamoDB table. It is safe for concurrent use.
type Store struct {
	*table.Catalog
	*table.Windows

	calls       *table.Table
	cfg         Config
	rules       plan.Rules
	births      atomic.Uint64
	dice        func(n int) int
	buckets     bucketCache
	expressions expr.Expressions
	measures    measures
	writes      batch.Group // the writes to buckets
	others      batch.Group // splits, and settles that go on after their callers have left
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Measured = (*Store)(nil)
)

// New returns a store on an existing table. It makes no call, and so does not check the table; see [Open]. The first
// write to a bucket reads the bucket for the answer's date, unless there was an answer before. An error is about the
// configuration, and matches [store.ErrInvalid].
func New(cfg Config) (*Store, error) { return newStore(cfg, nil) }

// newStore returns a store on a machine; nil: this one.
func newStore(cfg Config, machine table.Machine) (*Store, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	calls := table.New(table.Config{
		Client: cfg.Client, Table: cfg.Table, WriteTimeout: cfg.WriteTimeout, Now: cfg.Now, Machine: machine,
	})
	s := &Store{
		Catalog: table.NewCatalog(calls), Windows: table.NewWindows(calls),
		calls: calls, cfg: cfg, dice: rand.IntN,
	}
	s.rules = plan.Rules{Guard: cfg.Guard, RejectionTTL: cfg.RejectionTTL, Retention: cfg.Retention}
	s.buckets.m = make(map[store.Bucket]*bucket)
	s.births.Store(rand.Uint64() >> 1)
	return s, nil
}

func (c *Config) fill() error {
	bad := func(field, reason string) error {
		return &store.Error{Op: "open", Key: c.Table, Err: table.Invalid("Config.%s %s", field, reason)}
	}
	switch {
	case c.Client == nil:
		return bad("Client", "is missing")
	case c.Table == "":
		return bad("Table", "is missing")
	case c.MaxShards < 0 || c.MaxShards > plan.MaxShards || c.MaxShards&(c.MaxShards-1) != 0:
		return bad("MaxShards", "must be a power of two, at most 64")
	case !(c.Prefetch.Share >= 0 && c.Prefetch.Share <= 1):
		return bad("Prefetch.Share", "must be between 0 and 1")
	case c.Prefetch.For < 0 || c.Prefetch.For > time.Second:
		return bad("Prefetch.For", "must be at most 1 s")
	case !(c.Guard <= 0.1):
		return bad("Guard", "must be at most 0.1")
	case c.Retention < 0:
		return bad("Retention", "must not be negative")
	case c.MaxBuckets < 0:
		return bad("MaxBuckets", "must not be negative")
	}
	c.RejectionTTL = cmp.Or(c.RejectionTTL, 250*time.Millisecond)
	c.Prefetch.For = cmp.Or(c.Prefetch.For, 100*time.Millisecond)
	c.CallTimeout = cmp.Or(c.CallTimeout, time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 2*time.Second)
	c.Guard = cmp.Or(c.Guard, 0.01)
	c.MaxShards = cmp.Or(c.MaxShards, plan.MaxShards)
	c.MaxBuckets = cmp.Or(c.MaxBuckets, 65_536)
	return nil
}

func (s *Store) now() int64 { return clock.Nanos(s.calls.Clock()) }

// Skew returns how far the time by which the store decides is ahead of the machine's clock: 0 unless that was set while
// the store was open, or differs by more than a second from DynamoDB's.
func (s *Store) Skew() time.Duration { return s.calls.Skew.Offset() }

// Close implements [store.Store]. Pending returns are made first. Takes that are still to be counted are counted in one
// attempt, within Config.CallTimeout.
func (s *Store) Close() error {
	s.calls.Close()
	s.others.Close()
	s.returnSurpluses()
	s.writes.Close()
	s.countOwed()
	s.calls.End()
	return nil
}

// Open returns a store on a table, after checking that this version of weir supports the table's layout. The answer's
// date also shows whether the machine's clock is off. If it is, Open reads a few more dates, for up to 3 s.
func Open(ctx context.Context, cfg Config) (*Store, error) { return open(ctx, cfg, nil) }

func open(ctx context.Context, cfg Config, machine table.Machine) (*Store, error) {
	s, err := newStore(cfg, machine)
	if err != nil {
		return nil, err
	}
	if err := schema.CheckVersion(ctx, s.calls); err != nil {
		s.calls.End()
		return nil, err
	}
	s.calls.Settled(ctx)
	return s, nil
}

// Tune sets a client's options as the store needs them: no retries by the SDK, which wait for seconds and repeat writes
// that must not be repeated; as many connections kept as there are concurrent calls; and no response that breaks off
// because the SDK closes its request too early. A client with its own HTTP client keeps that. The store turns retries
// off for each of its writes in any case.
func Tune(o *dynamodb.Options) {
	o.Retryer = aws.NopRetryer{}
	client, ok := o.HTTPClient.(*awshttp.BuildableClient)
	switch {
	case o.HTTPClient == nil:
		client = awshttp.NewBuildableClient()
	case !ok:
		return
	}
	o.HTTPClient = plain{client.WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, 1024
	})}
}

// plain sends bodies as plain readers. The SDK closes its own body once the response headers have arrived. net/http
// sometimes takes that for a failed write and breaks the connection in the middle of a long response, which leaves a
// write with an unknown outcome.
type plain struct{ aws.HTTPClient }

// Do sends a request.
func (p plain) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		copied := *req
		copied.Body = io.NopCloser(bytes.NewReader(body))
		req = &copied
	}
	return p.HTTPClient.Do(req)
}
