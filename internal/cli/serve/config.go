package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/fleet/configflow/snssqs"
	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store"
)

// configFlags configure how a server learns of changes that others make.
type configFlags struct {
	TTL   time.Duration  `json:"cache_ttl" range:"1s..1h" default:"1m"`
	Poll  time.Duration  `json:"poll" default:"5s"`
	File  string         `json:"last_known"`
	From  secret.Address `json:"mirror"`
	Queue string         `json:"mirror_queue"`

	known *lastgood.Known
	flow  *configflow.Flow // set once the store is open
}

func (f *configFlags) check() error {
	switch u, err := url.Parse(f.Queue); {
	case f.Poll != 0 && f.Poll < 100*time.Millisecond:
		return kit.Usage(errors.New("--poll must be at least 100ms, or 0"))
	case f.Poll == 0 && f.File != "":
		return kit.Usage(errors.New("--last-known needs --poll"))
	case f.Queue != "" && f.From == "":
		return kit.Usage(errors.New("--mirror-queue needs --mirror"))
	case f.Queue != "" && (err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http")):
		return kit.Usagef("--mirror-queue %q is not a URL such as "+
			"https://sqs.eu-central-1.amazonaws.com/123456789012/weir-cell", secret.Address(f.Queue))
	}
	return nil
}

// open sets how long limits are cached, and reads --last-known.
//
//nolint:unparam // a step of a part may fail
func (f *configFlags) open(_ context.Context, s *serving) error {
	if f.File != "" {
		known, err := lastgood.Open(f.File, nameOf(string(s.run.Store)))
		if err != nil {
			s.log.Warn("the last known limits cannot be read", slog.Any("error", err))
		}
		f.known = known
	}
	s.run.Config.CacheTTL = f.TTL
	s.run.LastGood, s.run.Late = f.lastGood(), f.late(s)
	s.observers = append(s.observers, f.observer(s.log))
	return nil
}

// nameOf returns the part of a store's address that identifies the store, without credentials and endpoint.
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

// lastGood returns the function for [kit.Run.LastGood], or nil.
func (f *configFlags) lastGood() func([]store.Key) (store.Got, bool) {
	if f.known == nil {
		return nil
	}
	return f.known.LastGood
}

// late returns how to start without the store, or nil if that is impossible. It needs limits in the file, and a key for
// lease ids that does not come from the store.
func (f *configFlags) late(s *serving) func(error) store.Store {
	if f.known == nil || f.known.At().IsZero() || !s.http.LeaseKey.Given() {
		return nil
	}
	open := func() (store.Store, error) { return stores.Open(s.run.Store, stores.Create) }
	return func(why error) store.Store {
		s.log.Warn("the store does not answer: using the limits from the file", slog.Any("error", why),
			slog.Time("as_of", f.known.At()), slog.String("file", f.File))
		return configflow.OpenLate(open, why, s.log)
	}
}

// observer counts and reports records that cannot be used.
func (f *configFlags) observer(log *slog.Logger) *weir.Observer {
	return &weir.Observer{Unreadable: func(ctx context.Context, e weir.UnreadableEvent) {
		if f.flow != nil {
			f.flow.Unreadable(ctx, e)
			return
		}
		log.ErrorContext(ctx, "a record cannot be used: the last known one stays in use", slog.Any("error", e.Err))
	}}
}

func (f *configFlags) start(ctx context.Context, s *serving) error {
	st := s.run.Opened
	_, inProcess := st.(store.InProcess) // which never fails
	if inProcess && f.File != "" {
		return kit.Usagef("--last-known has no use with --store %s, which always answers", nameOf(string(s.run.Store)))
	}
	if f.Poll > 0 && !inProcess {
		f.flow = configflow.New(configflow.Config{Limiter: s.lim, Store: st, Known: f.known, Poll: f.Poll, Log: s.log})
		s.metrics.counts.Register(func(to *metrics.Scrape) { reportFlow(to, f.flow.Status()) })
		s.tasks = append(s.tasks, f.flow.Run)
	}
	if f.From == "" {
		if err := configflow.Release(ctx, st); err != nil && kit.CodeOf(err) != kit.Unavailable {
			return err
		}
		return nil
	}
	at, err := s.run.StoreAt("mirror", f.From)
	if err != nil {
		return err
	}
	from, err := openAside("mirror", at, s.log, func(ctx context.Context) (bool, error) {
		epochs, err := lastgood.Epochs(ctx, st, store.Registry, weir.DefaultNamespace)
		return slices.ContainsFunc(epochs, func(n uint64) bool { return n > 0 }), err
	})
	if err != nil {
		return err
	}
	s.atEnd(func() { _ = from.Close() }) // it was only read from
	mirror := configflow.NewMirror(configflow.MirrorConfig{
		From: from, Source: nameOf(string(at)), To: st, Log: s.log,
	})
	s.metrics.counts.Register(func(to *metrics.Scrape) { reportMirror(to, mirror) })
	s.tasks = append(s.tasks, mirror.Run)
	if f.Queue == "" {
		return nil
	}
	client, err := queueClient(ctx, f.Queue)
	if err != nil {
		return err
	}
	consumer := &snssqs.Consumer{Client: client, URL: f.Queue, Apply: mirror.Apply, Log: s.log}
	s.tasks = append(s.tasks, consumer.Run)
	return nil
}

// openAside opens the store of a flag, which no decision needs. If it does not answer, and the process's own store
// has what was last read from it, the process goes by that, and opens the store as soon as it answers.
func openAside(
	flag string, at secret.Address, log *slog.Logger, known func(context.Context) (bool, error),
) (store.Store, error) {
	st, err := stores.Open(at, stores.Existing)
	if err == nil {
		return st, nil
	}
	why := fmt.Errorf("--%s: %w", flag, err)
	if kit.CodeOf(err) != kit.Unavailable {
		return nil, why
	}
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	if ok, err := known(ctx); !ok || err != nil {
		return nil, errors.Join(why, err)
	}
	log.Warn("a store does not answer: going by what was last read from it", slog.Any("error", why))
	return configflow.OpenLate(func() (store.Store, error) { return stores.Open(at, stores.Existing) }, why, log), nil
}

// reportFlow adds the metrics of how the process learns of changes.
func reportFlow(s *metrics.Scrape, st configflow.Status) {
	s.Gauge("weir_config_age_seconds", "For how long a change of limits may have gone unnoticed.",
		metrics.Value(st.Age.Seconds()))
	s.Gauge("weir_config_from_file", "1 while limits come from a file because the store has not answered yet.",
		metrics.Truth(st.FromFile))
	s.Counter("weir_config_changes_total", "Changes by other processes that were noticed, by how.",
		metrics.Value(st.Polled, "by", "poll"), metrics.Value(st.Announced, "by", "store"))
	s.Counter("weir_config_unreadable_total",
		"Times that a record could not be used, so that the last known version stayed in force.",
		metrics.Value(st.Unreadable))
}

// reportMirror adds the metrics of the age of a cell's configuration.
func reportMirror(s *metrics.Scrape, m *configflow.Mirror) {
	age, stale := m.Age()
	s.Gauge("weir_config_mirror_age_seconds",
		"For how long the cell's configuration may have differed from its source.", metrics.Value(age.Seconds()))
	s.Gauge("weir_config_mirror_stale", "1 until the cell's configuration has been compared with its source since "+
		"the process started.", metrics.Truth(stale))
}

// queueClient returns a client for the region in the queue's URL, or else the environment's region.
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
