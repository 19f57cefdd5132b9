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
	// MaxAttempts is how often an event is sent at most.
	MaxAttempts = 8
	// MaxAge is for how long an event is tried, however seldom the receiver asks for it.
	MaxAge = 15 * time.Minute

	minSecret      = 16
	attemptTimeout = 10 * time.Second
	firstPause     = 500 * time.Millisecond
	longestPause   = time.Minute
	warnEvery      = time.Minute
)

// Config configures a [Webhook]. URL and Secret are required.
type Config struct {
	// URL receives the events. It is https, or http of this machine.
	URL string
	// Insecure allows http to other machines.
	Insecure bool
	// Secret signs them: at least 16 bytes.
	Secret []byte
	// Queue is how many events wait at most; one more drops the oldest. Defaults to 1,024.
	Queue int
	// Client sends. Its redirects are not followed. Defaults to one of its own.
	Client *http.Client
	// UserAgent names the sender. Defaults to weir.
	UserAgent string
	// Log is told of what is not delivered, never of the secret or the URL's path. Defaults to slog.Default.
	Log *slog.Logger
	// Jitter draws a pause of at most so long. Defaults to any, each as likely as another.
	Jitter func(most time.Duration) time.Duration
}

// Stats are what became of events.
type Stats struct {
	Waiting   int    // not delivered yet
	Delivered uint64 // taken by the receiver
	Rejected  uint64 // answered so that it makes no sense to send them again
	GivenUp   uint64 // sent too often, or for too long, or left when it was closed
	Dropped   uint64 // for lack of room
}

// Webhook sends near-limit events to a receiver. It is safe for concurrent use. See [New].
type Webhook struct {
	cfg  Config
	host string
	wake chan struct{}   // has one token when something has changed
	done chan struct{}   // closed when the sender has ended
	ctx  context.Context //nolint:containedctx // of the sender, which outlives each call
	stop context.CancelFunc

	mu     sync.Mutex
	queue  []*delivery // the oldest first
	paused time.Time   // nothing is sent before
	born   uint64      // how many there were
	closed bool
	stats  Stats
	warned time.Time // of events that were dropped
}

// delivery is an event on its way.
type delivery struct {
	id       string
	body     []byte
	what     slog.Attr
	number   uint64 // in the order in which they came
	born     time.Time
	due      time.Time
	attempts int
}

// New returns a webhook, which sends until it is closed.
//
// Errors: [*weir.ConfigError].
func New(cfg Config) (*Webhook, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, bad("webhook URL", "is not one: https://HOST/PATH")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, bad("webhook URL", "must begin with https://")
	case u.Scheme == "http" && !cfg.Insecure && !loopback(u.Hostname()):
		return nil, bad("webhook URL", "is http, and %s is not this machine: use https", u.Hostname())
	case len(cfg.Secret) < minSecret:
		return nil, bad("webhook secret", "has %d bytes, at least %d are needed", len(cfg.Secret), minSecret)
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
	w := &Webhook{cfg: cfg, host: u.Host, wake: make(chan struct{}, 1), done: make(chan struct{})}
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

// NearLimit has an event sent. It waits for nothing; it is for [weir.Observer]. After Close it drops the event.
func (w *Webhook) NearLimit(_ context.Context, e weir.NearLimitEvent) {
	now := time.Now()
	d := &delivery{id: e.ID, body: Body(&e), what: attrOf(&e), born: now, due: now}
	w.mu.Lock()
	if w.closed {
		w.stats.Dropped++
		w.mu.Unlock()
		return
	}
	w.born++
	d.number = w.born
	w.queue = append(w.queue, d)
	dropped := w.trim(now)
	w.mu.Unlock()
	w.poke()
	w.warn(dropped)
}

// trim drops the oldest event if there are too many. It returns how many were dropped so far, if it is time to tell. The
// webhook is locked.
func (w *Webhook) trim(now time.Time) (dropped uint64) {
	if len(w.queue) <= w.cfg.Queue {
		return 0
	}
	w.queue = slices.Delete(w.queue, 0, 1)
	w.stats.Dropped++
	if !w.warned.IsZero() && now.Sub(w.warned) < warnEvery {
		return 0
	}
	w.warned = now
	return w.stats.Dropped
}

// warn tells of events that were dropped. No lock is held while it logs: decisions do not wait for a log.
func (w *Webhook) warn(dropped uint64) {
	if dropped > 0 {
		w.cfg.Log.Warn("webhook: more near-limit events than it takes: the oldest are dropped",
			slog.String("host", w.host), slog.Uint64("dropped", dropped))
	}
}

func (w *Webhook) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Stats returns what became of events so far.
func (w *Webhook) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	s.Waiting = len(w.queue)
	return s
}

// Close sends what waits, once more and at once, until ctx ends, and returns when the sender has ended. It is
// idempotent.
//
// Errors: one that says how many events were not delivered since Close was called.
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
