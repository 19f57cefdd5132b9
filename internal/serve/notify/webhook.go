// Package notify sends events about limits that are nearly used up to a webhook or a log.
//
// Each event is one POST of a JSON object, with these headers:
//
//	Weir-Event-Id    the event's id: the same for every attempt, and from every process that reports the event
//	Weir-Timestamp   when it was sent, in seconds since 1970; different for every attempt
//	Weir-Signature   v1= and the hexadecimal HMAC-SHA256, under the shared secret, of timestamp "." body
//
// A status from 200 to 299 accepts the event. After a 429, a status of 500 or more, or no response, the event is sent
// again, within the bounds of [MaxAttempts] and [MaxAge]; any other status drops it. Undelivered events are counted and
// logged. Decisions never wait for a receiver.
package notify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
)

const (
	// MaxAttempts is the maximum number of times that an event is sent.
	MaxAttempts = 8
	// MaxAge is how long an event is retried, whatever Retry-After the receiver sends.
	MaxAge = 15 * time.Minute

	minSecret      = 16
	attemptTimeout = 10 * time.Second
	firstPause     = 500 * time.Millisecond
	longestPause   = time.Minute
	warnEvery      = time.Minute
)

// Config configures a [Webhook]. URL and Secret are required.
type Config struct {
	// URL receives the events. It must be https, or http to this machine.
	URL string
	// Insecure allows http to other machines.
	Insecure bool
	// Secret signs the events. It must have at least 16 bytes.
	Secret []byte
	// Queue is the maximum number of waiting events; one more drops the oldest of the namespace that has most. Defaults
	// to 1,024.
	Queue int
	// Client sends the requests. Redirects are not followed. Defaults to a client of the webhook's own.
	Client *http.Client
	// UserAgent is the User-Agent of the requests. Defaults to weir.
	UserAgent string
	// Log receives undelivered events, but never the secret or the URL's path. Defaults to slog.Default.
	Log *slog.Logger
	// Jitter returns a random pause of at most the given length. Defaults to a uniform distribution.
	Jitter func(most time.Duration) time.Duration
}

// Stats counts events by outcome.
type Stats struct {
	Waiting   int    // not delivered yet
	Delivered uint64 // accepted by the receiver
	Rejected  uint64 // refused by the receiver with a status that rules out a retry
	GivenUp   uint64 // retried too often or for too long, or left over at Close
	Dropped   uint64 // because the queue was full
}

// Webhook sends near-limit events to a receiver. It is safe for concurrent use. See [New].
type Webhook struct {
	cfg  Config
	host string
	wake chan struct{}   // holds one token when something has changed
	done chan struct{}   // closed when the sender has ended
	ctx  context.Context //nolint:containedctx // of the sender, which outlives any call
	stop context.CancelFunc

	mu      sync.Mutex
	queue   []*delivery    // oldest first
	waiting map[string]int // how many of them each namespace has
	paused  time.Time      // nothing is sent before this time
	born    uint64         // how many events there have been
	closed  bool
	stats   Stats
	warned  time.Time // when dropped events were last logged
}

// delivery is an event that is being delivered.
type delivery struct {
	id       string
	of       string // the namespace
	body     []byte
	what     slog.Attr
	number   uint64 // in order of arrival
	born     time.Time
	due      time.Time
	attempts int
}

// FieldSecret is the field of a [*weir.ConfigError] about the secret.
const FieldSecret = "webhook secret"

// New returns a webhook. It sends events until it is closed.
//
// Errors: [*weir.ConfigError].
func New(cfg Config) (*Webhook, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, bad("webhook URL", "must be a URL such as https://HOST/PATH")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, bad("webhook URL", "must begin with https://")
	case u.Scheme == "http" && !cfg.Insecure && !loopback(u.Hostname()):
		return nil, bad("webhook URL", "is http, and %s is not this machine: use https", u.Hostname())
	case len(cfg.Secret) < minSecret:
		return nil, bad(FieldSecret, "has %d bytes, at least %d are needed", len(cfg.Secret), minSecret)
	case cfg.Queue < 0:
		return nil, bad("webhook queue", "must not be negative")
	}
	client := http.Client{}
	if cfg.Client != nil {
		client = *cfg.Client
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		client.Transport = t.Clone()
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cfg.Client = &client
	cfg.Secret = slices.Clone(cfg.Secret)
	cfg.Queue = cmp.Or(cfg.Queue, 1024)
	cfg.UserAgent = cmp.Or(cfg.UserAgent, "weir")
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	w := &Webhook{
		cfg: cfg, host: u.Host, wake: make(chan struct{}, 1), done: make(chan struct{}), waiting: make(map[string]int),
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	go w.run()
	return w, nil
}

func bad(field, format string, args ...any) error {
	return &weir.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// NearLimit queues an event without blocking, for [weir.Observer]. After Close it drops the event.
func (w *Webhook) NearLimit(_ context.Context, e weir.NearLimitEvent) {
	now := time.Now()
	d := &delivery{id: e.ID, of: e.Namespace, body: Body(&e), what: attrOf(&e), born: now, due: now}
	w.mu.Lock()
	if w.closed {
		w.stats.Dropped++
		w.mu.Unlock()
		return
	}
	w.born++
	d.number = w.born
	w.put(d)
	dropped := w.trim(now)
	w.mu.Unlock()
	w.poke()
	w.warn(dropped)
}

// put adds an event to the queue, in order of arrival. The webhook is locked.
func (w *Webhook) put(d *delivery) {
	at, _ := slices.BinarySearchFunc(w.queue, d, func(a, b *delivery) int { return cmp.Compare(a.number, b.number) })
	w.queue = slices.Insert(w.queue, at, d)
	w.waiting[d.of]++
}

// remove removes an event from the queue and returns it. The webhook is locked.
func (w *Webhook) remove(at int) *delivery {
	d := w.queue[at]
	w.queue = slices.Delete(w.queue, at, at+1)
	if w.waiting[d.of]--; w.waiting[d.of] == 0 {
		delete(w.waiting, d.of)
	}
	return d
}

// trim drops the oldest event of the namespace that has most if there are too many. If it is time for a log line, it
// returns how many have been dropped so far. The webhook is locked.
func (w *Webhook) trim(now time.Time) (dropped uint64) {
	if len(w.queue) <= w.cfg.Queue {
		return 0
	}
	most := 0
	for _, n := range w.waiting {
		most = max(most, n)
	}
	w.remove(slices.IndexFunc(w.queue, func(d *delivery) bool { return w.waiting[d.of] == most }))
	w.stats.Dropped++
	if !w.warned.IsZero() && now.Sub(w.warned) < warnEvery {
		return 0
	}
	w.warned = now
	return w.stats.Dropped
}

// warn logs dropped events. No lock is held meanwhile, so that decisions do not wait for the log.
func (w *Webhook) warn(dropped uint64) {
	if dropped > 0 {
		w.cfg.Log.Warn("webhook: too many near-limit events wait: the oldest of the namespace with most are dropped",
			slog.String("host", w.host), slog.Uint64("dropped", dropped))
	}
}

func (w *Webhook) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stats returns the counts so far.
func (w *Webhook) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Waiting = len(w.queue)
	return s
}

// Close makes one immediate attempt for each waiting event until ctx ends, and returns when the sender has ended. It is
// idempotent.
//
// Errors: one that gives the number of events not delivered since Close was called.
func (w *Webhook) Close(ctx context.Context) error {
	w.mu.Lock()
	before := w.stats
	w.closed, w.paused = true, time.Time{}
	for _, d := range w.queue {
		d.due = time.Time{}
	}
	w.mu.Unlock()
	w.poke()
	stop := context.AfterFunc(ctx, w.stop)
	defer stop()
	<-w.done
	w.stop()
	w.cfg.Client.CloseIdleConnections()
	after := w.Stats()
	if lost := after.GivenUp + after.Rejected - before.GivenUp - before.Rejected; lost > 0 {
		return fmt.Errorf("webhook: %d near-limit events were not delivered", lost)
	}
	return nil
}
