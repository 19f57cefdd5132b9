package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/configflow"
	"github.com/weirlimits/weir/internal/configflow/snssqs"
	"github.com/weirlimits/weir/internal/metrics"
	"github.com/weirlimits/weir/store"
)

// configFlags say how a server learns what others change.
type configFlags struct {
	poll  time.Duration
	file  string
	from  string
	queue string

	known *configflow.Known
	flow  *configflow.Flow // once the store is open
}

func (f *configFlags) bind(flags *pflag.FlagSet) {
	flags.DurationVar(&f.poll, "config-poll", 5*time.Second, "`TIME` between looks whether others have changed limits; 0: never, the caches expire in a minute")
	flags.StringVar(&f.file, "config-file", "", "keep the last known limits in `FILE`, to go by when the store does not answer; with --lease-key also to start without it")
	flags.StringVar(&f.from, "config-from", "", "bring the configuration of the store at `URL` to this one, such as dynamodb://weir to the Redis of a cell")
	flags.StringVar(&f.queue, "config-queue", "", "with --config-from: `URL` of the SQS queue that tells what changed")
}

func (f *configFlags) check() error {
	switch u, err := url.Parse(f.queue); {
	case f.poll != 0 && f.poll < 100*time.Millisecond:
		return usageError{errors.New("--config-poll must be at least 100ms, or 0")}
	case f.poll == 0 && f.file != "":
		return usageError{errors.New("--config-file needs --config-poll")}
	case f.queue != "" && f.from == "":
		return usageError{errors.New("--config-queue goes with --config-from")}
	case f.queue != "" && (err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http")):
		return usageError{fmt.Errorf("--config-queue %q is not a URL such as https://sqs.eu-central-1.amazonaws.com/123456789012/weir-cell", f.queue)}
	}
	return nil
}

// open reads the file, before the store is opened.
func (f *configFlags) open(address string, log *slog.Logger) {
	if f.file == "" {
		return
	}
	known, err := configflow.Open(f.file, nameOf(address))
	if err != nil {
		log.Warn("the last known limits cannot be read", slog.Any("error", err))
	}
	f.known = known
}

// nameOf returns what a store's address says of which it is, and not how it is reached: without credentials
// and endpoint.
func nameOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "?"
	}
	q := u.Query()
	u.User, u.Fragment = nil, ""
	u.RawQuery = url.Values{"region": q["region"], "prefix": q["prefix"]}.Encode()
	return u.String()
}

// lastGood is the limiter's, or nil.
func (f *configFlags) lastGood() func([]store.Key) (store.Got, bool) {
	if f.known == nil {
		return nil
	}
	return f.known.LastGood
}

// late is how to start without the store: if a file says what the limits were, and the key of lease ids need not be asked
// of the store.
func (f *configFlags) late(address string, key bool, log *slog.Logger) func(error) store.Store {
	if f.known == nil || f.known.At().IsZero() || !key {
		return nil
	}
	return func(why error) store.Store {
		log.Warn("the store does not answer: the limits are those of the file", slog.Any("error", why), slog.Time("as_of", f.known.At()), slog.String("file", f.file))
		return configflow.OpenLate(func() (store.Store, error) { return openStore(address, create) }, why, log)
	}
}

// observer has records that cannot be used counted, and told of.
func (f *configFlags) observer(log *slog.Logger) *weir.Observer {
	return &weir.Observer{Unreadable: func(ctx context.Context, e weir.UnreadableEvent) {
		if f.flow != nil {
			f.flow.Unreadable(ctx, e)
			return
		}
		log.ErrorContext(ctx, "a record cannot be used: what was known before serves on", slog.Any("error", e.Err))
	}}
}

// parts are what runs beside the server.
func (f *configFlags) parts(ctx context.Context, lim *weir.Limiter, st store.Store, m *metrics.Metrics, log *slog.Logger) (parts []part, done func(), err error) {
	done = func() {}
	if _, embedded := st.(store.Immediate); f.poll > 0 && !embedded { // nobody else writes to that
		f.flow = configflow.New(configflow.Config{Limiter: lim, Store: st, Known: f.known, Poll: f.poll, Log: log})
		m.WatchConfig(func() metrics.ConfigFlow {
			s := f.flow.Status()
			return metrics.ConfigFlow{Age: s.Age, FromFile: s.FromFile, Polled: s.Polled, Told: s.Told, Unreadable: s.Unreadable}
		})
		parts = append(parts, f.flow.Run)
	}
	if f.from == "" {
		return parts, done, nil
	}
	source, err := openStore(f.from, existing)
	if err != nil {
		return nil, done, fmt.Errorf("--config-from: %w", err)
	}
	done = func() { _ = source.Close() } // it was only read
	mirror := configflow.NewMirror(configflow.MirrorConfig{From: source, To: st, Log: log})
	m.WatchMirror(func() (age time.Duration) { return mirror.Status().Age })
	parts = append(parts, mirror.Run)
	if f.queue == "" {
		return parts, done, nil
	}
	client, err := queueClient(ctx, f.queue)
	if err != nil {
		done()
		return nil, func() {}, err
	}
	consumer := &snssqs.Consumer{Client: client, URL: f.queue, Apply: mirror.Apply, Log: log}
	return append(parts, consumer.Run), done, nil
}

// queueClient returns a client for the region that the queue's URL names, or the environment's.
func queueClient(ctx context.Context, queue string) (*sqs.Client, error) {
	var with []func(*awsconfig.LoadOptions) error
	if u, err := url.Parse(queue); err == nil {
		if words := strings.Split(u.Hostname(), "."); len(words) > 2 && words[0] == "sqs" {
			with = append(with, awsconfig.WithRegion(words[1]))
		}
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return nil, &store.Error{Op: "open", Key: queue, Err: err, Hint: "check the AWS configuration and the profile"}
	}
	return sqs.NewFromConfig(cfg), nil
}
