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
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/store"
)

// Config configures a [Flow]. Limiter and Store are required.
type Config struct {
	Limiter *weir.Limiter
	Store   store.Store // the limiter's
	// Known, if not nil, is kept up to date and saved.
	Known *lastgood.Known
	// Poll is how often the epochs of namespaces in use are read, plus or minus a tenth. Defaults to 5 s.
	Poll time.Duration
	// Spread is the period over which entities are reread if a namespace's epoch has risen and the changed keys are
	// unknown. Defaults to twice Poll.
	Spread time.Duration
	// Snapshot is how often Known is updated if no change is noticed. After a change, it is updated within a tenth of
	// that. Defaults to 5 min.
	Snapshot time.Duration
	// Log receives a message when trouble begins and ends. Defaults to discarding them.
	Log *slog.Logger
}

// pollBatch is how many namespaces' epochs one poll reads; if there are more, they take turns.
const pollBatch = 100

// Flow keeps a limiter's caches up to date with other processes' commits.
type Flow struct {
	cfg Config

	mu         sync.Mutex
	spaces     map[string]*seen
	next       int       // the next namespace in turn
	begun      time.Time // since when changes may have gone unnoticed; used until started
	started    bool      // the registry was polled, so knowledge no longer comes from a file
	trouble    bool
	polled     uint64 // changes found by polls
	announced  uint64 // commits that the store announced
	unreadable uint64

	soon  chan struct{} // requests an immediate poll
	moved chan struct{} // something has changed since Known was last updated
}

// seen is the known state of a namespace.
type seen struct {
	epoch uint64
	at    time.Time // when epoch was read or announced
}

// New returns a flow that does nothing before [Flow.Run].
func New(cfg Config) *Flow {
	cfg.Poll = cmp.Or(cfg.Poll, 5*time.Second)
	cfg.Spread = cmp.Or(cfg.Spread, 2*cfg.Poll)
	cfg.Snapshot = cmp.Or(cfg.Snapshot, 5*time.Minute)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	f := &Flow{
		cfg: cfg, spaces: make(map[string]*seen), begun: time.Now(), soon: make(chan struct{}, 1),
		moved: make(chan struct{}, 1),
	}
	if cfg.Known != nil && !cfg.Known.At().IsZero() {
		f.begun = cfg.Known.At()
	}
	return f
}

// Run keeps the caches up to date until ctx ends.
func (f *Flow) Run(ctx context.Context) error {
	var running sync.WaitGroup
	if w, ok := f.cfg.Store.(store.Watcher); ok {
		running.Go(func() { f.watch(ctx, w) })
	}
	if f.cfg.Known != nil {
		running.Go(func() { f.keep(ctx) })
	}
	for {
		_ = f.Poll(ctx) // it has logged the error
		if !f.rest(ctx, f.cfg.Poll) {
			running.Wait()
			return nil
		}
	}
}

// rest waits for about d, or until a poll is requested. It returns false once ctx ends.
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

// Poll compares the epochs of namespaces in use with those last seen, and has changed ones reread.
func (f *Flow) Poll(ctx context.Context) error {
	began := time.Now()
	ids := f.turn()
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	epochs, err := lastgood.Epochs(bounded, f.cfg.Store, ids...)
	if f.observe(ctx, err); err != nil {
		return err
	}
	for i, id := range ids {
		f.mu.Lock()
		s := f.spaces[id]
		// Otherwise a newer epoch was announced meanwhile.
		changed := s == nil || s.epoch != epochs[i] && !s.at.After(began)
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
			parts.Of(f.cfg.Limiter).Policies.Changed(store.Key{Namespace: store.Registry})
		default:
			parts.Of(f.cfg.Limiter).Policies.ChangedWithin(id, f.cfg.Spread)
		}
	}
	return nil
}

// turn returns the namespaces of the next poll: the registry, and those whose turn it is.
func (f *Flow) turn() []string {
	used := parts.Of(f.cfg.Limiter).Policies.NamespaceIDs()
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

// Announced applies a commit that the store announced. It ignores a commit that is not newer than what is known. If
// commits were missed in between, it requests a poll, which makes up for them.
func (f *Flow) Announced(ch store.Changes) {
	f.mu.Lock()
	s := f.spaces[ch.Namespace]
	if s != nil && ch.Epoch <= s.epoch {
		f.mu.Unlock()
		return
	}
	f.announced++
	missed := s != nil && ch.Epoch != s.epoch+1
	if s != nil && !missed {
		s.epoch, s.at = ch.Epoch, time.Now()
	}
	f.mu.Unlock()
	parts.Of(f.cfg.Limiter).Policies.Changed(ch.Keys...)
	wake(f.moved)
	if missed {
		f.Wake()
	}
}

// Wake requests a poll at once.
func (f *Flow) Wake() { wake(f.soon) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is already requested
	}
}

// watch listens to the store's announcements, and reconnects if that fails.
func (f *Flow) watch(ctx context.Context, w store.Watcher) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		began := time.Now()
		err := w.Watch(ctx, f.Wake, f.Announced) // a poll finds changes from before it was ready
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause = time.Second
		}
		f.cfg.Log.WarnContext(
			ctx, "the store does not announce changes: polling for them", slog.Any("error", err),
			slog.Duration("again_in", pause),
		)
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return
		}
	}
}

// keep updates Known and saves it: soon after each change, and when the process ends.
func (f *Flow) keep(ctx context.Context) {
	for {
		select {
		case <-f.moved:
		default:
		}
		err := f.Keep(ctx)
		least, most := f.cfg.Snapshot/10, f.cfg.Snapshot
		if err != nil && ctx.Err() == nil {
			f.cfg.Log.WarnContext(ctx, "the last known configuration could not be updated", slog.Any("error", err))
			least = min(least, 4*f.cfg.Poll)
			most = least
		}
		sleep(ctx, least-least/10+rand.N(least/5+1)) // even if changes never stop
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

// keepLast saves what has changed since the last update.
func (f *Flow) keepLast(ctx context.Context) {
	select {
	case <-f.moved:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := f.Keep(ctx); err != nil {
		f.cfg.Log.WarnContext(ctx, "the last known configuration could not be updated", slog.Any("error", err))
	}
}

// Keep updates Known once and saves it.
func (f *Flow) Keep(ctx context.Context) error {
	bad := func(err error) {
		f.Unreadable(ctx, weir.UnreadableEvent{Err: err})
	}
	if err := f.cfg.Known.Update(ctx, f.cfg.Store, parts.Of(f.cfg.Limiter).Policies.NamespaceIDs(), bad); err != nil {
		return err
	}
	return f.cfg.Known.Save()
}

// Counted keeps in Known how many processes share the limits.
func (f *Flow) Counted(n int) {
	if f.cfg.Known != nil {
		f.cfg.Known.SetInstances(n)
		wake(f.moved)
	}
}

// Unreadable counts a record that cannot be used. Use it in an Observer.
func (f *Flow) Unreadable(ctx context.Context, e weir.UnreadableEvent) {
	f.mu.Lock()
	f.unreadable++
	f.mu.Unlock()
	f.cfg.Log.ErrorContext(ctx, "a record cannot be used: the last known one stays in use", slog.Any("error", e.Err))
}

// observe logs when the store stops answering and when it answers again.
func (f *Flow) observe(ctx context.Context, err error) {
	f.mu.Lock()
	was := f.trouble
	f.trouble = err != nil && ctx.Err() == nil
	now := f.trouble
	f.mu.Unlock()
	switch {
	case now && !was:
		f.cfg.Log.WarnContext(
			ctx, "changes of limits are not noticed: the store does not answer", slog.Any("error", err),
		)
	case was && !now && ctx.Err() == nil:
		f.cfg.Log.InfoContext(ctx, "changes of limits are noticed again")
	}
}

// Status is the state of a flow.
type Status struct {
	Age        time.Duration // for how long a change may have gone unnoticed, in the namespace polled longest ago
	FromFile   bool          // the store has not answered yet: the configuration comes from a file
	Polled     uint64        // changes found by polling
	Announced  uint64        // commits that the store announced
	Unreadable uint64        // how often a record could not be used
}

// Status returns the flow's state.
func (f *Flow) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Polled: f.polled, Announced: f.announced, Unreadable: f.unreadable}
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
