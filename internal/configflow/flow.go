package configflow

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Flow]. Limiter and Store are required.
type Config struct {
	Limiter *weir.Limiter
	Store   store.Store // the limiter's
	// Known, if not nil, is kept up to date, and saved.
	Known *Known
	// Poll is how often the epochs of namespaces in use are read, give or take a tenth. Defaults to 5 s.
	Poll time.Duration
	// Spread is within how long entities are read anew once a namespace's epoch has risen and it is not known for whom.
	// Defaults to twice Poll.
	Spread time.Duration
	// Snapshot is how often Known is brought up to date if nothing is noticed; else within a tenth of it. Defaults to 5 min.
	Snapshot time.Duration
	// Log is told of trouble when it begins and ends. Defaults to nobody.
	Log *slog.Logger
}

// pollBatch is of how many namespaces one poll reads the epochs; more take turns.
const pollBatch = 100

// Flow keeps a limiter's caches up to date with what others commit.
type Flow struct {
	cfg Config

	mu         sync.Mutex
	spaces     map[string]*seen
	next       int       // whose turn it is
	begun      time.Time // when it began to know nothing
	started    bool      // the registry was polled: it is no longer what a file knew
	trouble    bool
	polled     uint64 // changes that a poll found
	told       uint64 // and that the store told of
	unreadable uint64

	soon  chan struct{} // to poll at once
	moved chan struct{} // something has changed since Known was brought up to date
}

// seen is what is known of a namespace.
type seen struct {
	epoch uint64
	at    time.Time // when that was read, or told
}

// New returns a flow that does nothing before [Flow.Run].
func New(cfg Config) *Flow {
	cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	cfg.Spread = cmp.Or(cfg.Spread, 2*cfg.Poll)
	cfg.Snapshot = cmp.Or(cfg.Snapshot, 5*time.Minute)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	f := &Flow{cfg: cfg, spaces: make(map[string]*seen), begun: time.Now(), soon: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
	if cfg.Known != nil && !cfg.Known.At().IsZero() {
		f.begun = cfg.Known.At()
	}
	return f
}

// Run works until ctx ends.
func (f *Flow) Run(ctx context.Context) error {
	var running sync.WaitGroup
	if w, ok := f.cfg.Store.(store.Watcher); ok {
		running.Go(func() { f.watch(ctx, w) })
	}
	if f.cfg.Known != nil {
		running.Go(func() { f.keep(ctx) })
	}
	for {
		_ = f.Poll(ctx) // it has told of the trouble
		if !f.rest(ctx, f.cfg.Poll) {
			running.Wait()
			return nil
		}
	}
}

// rest waits, unless somebody wants a poll.
func (f *Flow) rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d - d/10 + rand.N(d/5+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-f.soon:
	}
	return ctx.Err() == nil
}

// Poll compares the epochs of namespaces in use with those that were seen last, and has what changed read anew.
func (f *Flow) Poll(ctx context.Context) error {
	began := time.Now()
	ids := f.turn()
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	epochs, err := epochsOf(bounded, f.cfg.Store, ids...)
	if f.observe(ctx, err); err != nil {
		return err
	}
	for i, id := range ids {
		f.mu.Lock()
		s := f.spaces[id]
		changed := s == nil || s.epoch != epochs[i] && !s.at.After(began) // else it was told of a newer one meanwhile
		if changed {
			if s != nil {
				f.polled++
			}
			s = &seen{epoch: epochs[i]}
			f.spaces[id] = s
		}
		s.at = began
		f.started = f.started || id == store.Registry
		f.mu.Unlock()
		if changed {
			wake(f.moved)
		}
		switch {
		case !changed:
		case id == store.Registry:
			f.cfg.Limiter.Changed(store.Key{Namespace: store.Registry})
		default:
			f.cfg.Limiter.ChangedWithin(id, f.cfg.Spread)
		}
	}
	return nil
}

// turn returns the namespaces of the next poll: the registry, and those whose turn it is.
func (f *Flow) turn() []string {
	used := f.cfg.Limiter.NamespaceIDs()
	slices.Sort(used)
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := []string{store.Registry}
	n := min(len(used), pollBatch-1)
	for i := range n {
		ids = append(ids, used[(f.next+i)%len(used)])
	}
	if f.next += n; len(used) > 0 {
		f.next %= len(used)
	}
	return ids
}

// Told applies what the store tells of a commit. One that is not newer than what is known is passed over, and after one
// that is not the next the poll makes up for those in between.
func (f *Flow) Told(ch store.Changes) {
	f.mu.Lock()
	s := f.spaces[ch.Namespace]
	if s != nil && ch.Epoch <= s.epoch {
		f.mu.Unlock()
		return
	}
	f.told++
	missed := s != nil && ch.Epoch != s.epoch+1
	if s != nil && !missed {
		s.epoch, s.at = ch.Epoch, time.Now()
	}
	f.mu.Unlock()
	f.cfg.Limiter.Changed(ch.Keys...)
	wake(f.moved)
	if missed {
		f.Wake()
	}
}

// Wake has the next poll at once.
func (f *Flow) Wake() { wake(f.soon) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is to come in any case
	}
}

// watch listens to the store, and begins anew when that breaks off.
func (f *Flow) watch(ctx context.Context, w store.Watcher) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		began := time.Now()
		err := w.Watch(ctx, f.Wake, f.Told) // what was not told before it was ready, the poll finds
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		f.cfg.Log.WarnContext(ctx, "the store tells of no changes: they are polled", slog.Any("error", err), slog.Duration("again_in", pause))
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return
		}
	}
}

// keep brings what is known up to date, and saves it: soon after something changed, and when the process ends.
func (f *Flow) keep(ctx context.Context) {
	for {
		select {
		case <-f.moved:
		default:
		}
		err := f.Keep(ctx)
		least, most := f.cfg.Snapshot/10, f.cfg.Snapshot
		if err != nil && ctx.Err() == nil {
			f.cfg.Log.WarnContext(ctx, "the last known configuration is not brought up to date", slog.Any("error", err))
			least = min(least, 4*f.cfg.Poll)
			most = least
		}
		sleep(ctx, least-least/10+rand.N(least/5+1)) // also where it changes all the time
		t := time.NewTimer(most - least)
		select {
		case <-ctx.Done():
		case <-f.moved:
			wake(f.moved)
		case <-t.C:
		}
		t.Stop()
		if ctx.Err() != nil {
			f.keepLast(ctx)
			return
		}
	}
}

// keepLast keeps what changed since it was kept last.
func (f *Flow) keepLast(ctx context.Context) {
	select {
	case <-f.moved:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := f.Keep(ctx); err != nil {
		f.cfg.Log.WarnContext(ctx, "the last known configuration is not brought up to date", slog.Any("error", err))
	}
}

// Keep brings what is known up to date once, and saves it.
func (f *Flow) Keep(ctx context.Context) error {
	bad := func(err error) {
		f.Unreadable(ctx, weir.UnreadableEvent{Err: err})
	}
	if err := f.cfg.Known.Update(ctx, f.cfg.Store, f.cfg.Limiter.NamespaceIDs(), bad); err != nil {
		return err
	}
	return f.cfg.Known.Save()
}

// Unreadable counts a record that cannot be used. It is an Observer's.
func (f *Flow) Unreadable(ctx context.Context, e weir.UnreadableEvent) {
	f.mu.Lock()
	f.unreadable++
	f.mu.Unlock()
	f.cfg.Log.ErrorContext(ctx, "a record cannot be used: what was known before serves on", slog.Any("error", e.Err))
}

// observe tells when the store ceases to answer, and when it answers again.
func (f *Flow) observe(ctx context.Context, err error) {
	f.mu.Lock()
	was := f.trouble
	f.trouble = err != nil && ctx.Err() == nil
	now := f.trouble
	f.mu.Unlock()
	switch {
	case now && !was:
		f.cfg.Log.WarnContext(ctx, "changes of limits are not noticed: the store does not answer", slog.Any("error", err))
	case was && !now && ctx.Err() == nil:
		f.cfg.Log.InfoContext(ctx, "changes of limits are noticed again")
	}
}

// Status is how a flow fares.
type Status struct {
	Age        time.Duration // since when a change may have gone unnoticed, of the namespace that was looked at last
	FromFile   bool          // the store has not answered yet: what is known comes from a file
	Polled     uint64        // changes that were found by polling
	Told       uint64        // commits that the store told of
	Unreadable uint64        // times that a record could not be used
}

// Status returns how the flow fares.
func (f *Flow) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Polled: f.polled, Told: f.told, Unreadable: f.unreadable}
	since := time.Now()
	for _, sp := range f.spaces {
		if sp.at.Before(since) {
			since = sp.at
		}
	}
	if !f.started {
		since = f.begun
		s.FromFile = f.cfg.Known != nil && !f.cfg.Known.At().IsZero()
	}
	s.Age = max(0, time.Since(since))
	return s
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
