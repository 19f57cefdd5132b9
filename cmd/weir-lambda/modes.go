package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/archive"
	"github.com/weirlimits/weir/internal/aws/archive/s3put"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/aws/stream"
	"github.com/weirlimits/weir/internal/fleet/configflow/snssqs"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// storeTimeout is the timeout of each store call of the provisioner. It can be long because no decision depends on it.
const storeTimeout = 10 * time.Second

// provision returns the handler that applies manifests.
func (e env) provision(_ context.Context, log *slog.Logger) (any, error) {
	table := e.get("WEIR_TABLE")
	kept, err := e.days("WEIR_AUDIT_RETENTION")
	if err != nil {
		return nil, err
	}
	if kept < 0 {
		kept = forever
	}
	open := func(ctx context.Context) (*weir.Limiter, error) {
		st, err := e.open(ctx)
		if err != nil {
			return nil, err
		}
		lim, err := weir.New(weir.Config{Store: st, StoreTimeout: storeTimeout, AuditRetention: kept})
		if err != nil {
			return nil, errors.Join(err, st.Close())
		}
		return lim, nil
	}
	p := &function.Provisioner{
		Open: open, Table: table, Log: log, Region: e.get("AWS_REGION"), Anywhere: e.anywhere,
	}
	return p.Handle, nil
}

// forever is longer than anyone needs the audit trail.
const forever = 100 * 365 * 24 * time.Hour

// heap is the memory limit of the aggregator's garbage collector. A batch and the state kept of earlier ones take about
// 60 MB, and everything else in the function half of that, so the function fits the smallest Lambda memory size.
const heap = 88 << 20

// aggregate counts usage. If WEIR_ARCHIVE_BUCKET is set, it also archives expired audit events to that bucket.
func (e env) aggregate(ctx context.Context, log *slog.Logger) (any, error) {
	debug.SetMemoryLimit(heap)
	cfg := stream.Config{Log: log}
	for name, kept := range map[string]*time.Duration{
		"HOURLY": &cfg.Metering.Hourly, "DAILY": &cfg.Metering.Daily, "MONTHLY": &cfg.Metering.Monthly,
	} {
		var err error
		if *kept, err = e.days("WEIR_USAGE_RETENTION_" + name); err != nil {
			return nil, err
		}
	}
	var err error
	if cfg.Metering.Windows, err = store.ParseWindows(e.get("WEIR_USAGE_WINDOWS")); err != nil {
		return nil, fmt.Errorf("WEIR_USAGE_WINDOWS: %w", err)
	}
	if without := e.get("WEIR_USAGE_WITHOUT"); without != "" {
		cfg.Metering.Without = strings.Split(without, ",")
	}
	if cfg.Store, err = e.open(ctx); err != nil {
		return nil, err
	}
	var to *archive.Archiver
	if bucket := e.get("WEIR_ARCHIVE_BUCKET"); bucket != "" {
		to = &archive.Archiver{To: s3put.New(e.aws("S3"), bucket), KeyOf: dynamodb.AuditKey}
	}
	return archiving(stream.Handler(cfg), to, log), nil
}

// config publishes configuration changes to the topic whose ARN is in WEIR_TOPIC.
func (e env) config(_ context.Context, log *slog.Logger) (any, error) {
	topic := e.get("WEIR_TOPIC")
	if topic == "" {
		return nil, errors.New("WEIR_TOPIC is not set: it is the ARN of the topic")
	}
	return (&snssqs.Publisher{
		Client: sns.NewFromConfig(e.aws("SNS")), ARN: topic, KeyOf: dynamodb.ConfigKey, Log: log,
	}).Handle, nil
}

// days reads a variable such as 90d: 0 if it is not set, -1 for "forever".
func (e env) days(name string) (time.Duration, error) {
	switch text := e.get(name); text {
	case "":
		return 0, nil
	case "forever":
		return -1, nil
	default:
		n, err := strconv.Atoi(strings.TrimSuffix(text, "d"))
		if err != nil || n < 1 || n > 36500 || !strings.HasSuffix(text, "d") {
			return 0, fmt.Errorf("%s=%q is neither a number of days such as 90d nor forever", name, text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
}
