package configflow

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/lastgood"
	"github.com/weirlimits/weir/internal/policy/source"
	"github.com/weirlimits/weir/store"
)

// MirrorConfig configures a [Mirror]. From and To are required.
type MirrorConfig struct {
	From store.Store // source of the configuration
	To   store.Store // store of the cell
	// Source names From to those whose changes of To are refused. Defaults to "another store".
	Source string
	// Every is how often namespaces whose epoch has changed are compared, plus or minus a tenth. Defaults to 1 min.
	Every time.Duration
	// Whole is how often everything is compared, regardless of epochs. Defaults to one hour.
	Whole time.Duration
	Log   *slog.Logger // defaults to discarding messages
}

// Mirror copies one store's configuration to another: the records that decisions use, and the names of namespaces. Any
// number of mirrors may work on the same stores. Limiters on the cell's store refuse changes of what is copied; the
// mirror reverts what is changed there in another way.
//
// It reads the target, then the source, and writes the target if it is still as read. So nothing is ever replaced by
// something older, however late a notification comes. A record that cannot be used is not copied: the target keeps what
// it has.
type Mirror struct {
	cfg MirrorConfig

	mu     sync.Mutex
	epochs map[string]mirrored
	at     time.Time // when both were last seen to be equal, or else when the mirror was made
	equal  bool      // both were seen to be equal
}

// mirrored is the state of a namespace when last compared: the source's epoch, and whether it was compared twice at it.
type mirrored struct {
	epoch   uint64
	settled bool
	at      time.Time
}

// NewMirror returns a mirror that does nothing until it is called.
func NewMirror(cfg MirrorConfig) *Mirror {
	cfg.Every = cmp.Or(cfg.Every, time.Minute)
	cfg.Whole = cmp.Or(cfg.Whole, time.Hour)
	cfg.Source = cmp.Or(cfg.Source, "another store")
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Mirror{cfg: cfg, epochs: make(map[string]mirrored), at: time.Now()}
}

// Age returns for how long both stores have not been seen to be equal: if stale, never by this mirror, so that the
// target may have differed for longer.
func (m *Mirror) Age() (age time.Duration, stale bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.at), !m.equal
}

// Run compares periodically until ctx ends. It compares a second time soon, because a change of the target that was
// being accepted at the first may have come after it.
func (m *Mirror) Run(ctx context.Context) error {
	for first := true; ; first = false {
		pause, soon := m.cfg.Every, min(m.cfg.Every, 5*time.Second)
		if first {
			pause = soon
		}
		if err := m.Reconcile(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.WarnContext(
				ctx, "the cell's configuration could not be compared with its source", slog.Any("error", err),
			)
			pause = soon
		}
		if !sleep(ctx, pause-pause/10+rand.N(pause/5+1)) {
			return nil
		}
	}
}

// Apply copies the record of an event, if the source's differs.
func (m *Mirror) Apply(ctx context.Context, e Event) error {
	if !source.Copied(e.Key.Kind) {
		return nil
	}
	if err := m.copy(ctx, e.Key); err != nil {
		return fmt.Errorf("copy %s: %w", e.Key, err)
	}
	return nil
}

// copy makes one record of the target equal to the source's.
func (m *Mirror) copy(ctx context.Context, key store.Key) error {
	for try := 0; ; try++ {
		have, err := m.cfg.To.Get(ctx, key) // first, so that the source is read after the version that is replaced
		if err != nil {
			return err
		}
		want, err := m.cfg.From.Get(ctx, key)
		if err != nil {
			return err
		}
		w, change := m.write(ctx, have.Records[0], want.Records[0])
		if !change {
			return nil
		}
		if w.Delete { // an event may come before the stores were compared, or after the source lost its data
			if _, err := m.sound(ctx, []string{store.Registry, weir.DefaultNamespace, key.Namespace}); err != nil {
				return err
			}
		}
		err = m.cfg.To.Commit(ctx, w)
		if err == nil || !errors.Is(err, store.ErrConflict) || try == 8 {
			return err
		}
		if !sleep(ctx, rand.N(10*time.Millisecond<<try)) {
			return ctx.Err()
		}
	}
}

// write returns the write that makes have equal to want.
func (m *Mirror) write(ctx context.Context, have, want store.Record) (w store.Write, change bool) {
	if want.Version == 0 {
		return store.Write{Record: store.Record{Key: have.Key, Version: have.Version}, Delete: true}, have.Version != 0
	}
	if err := policy.Check(want); err != nil {
		m.cfg.Log.ErrorContext(ctx, "a record cannot be used: the cell keeps its own version", slog.Any("error", err))
		return w, false
	}
	if have.Version != 0 && bytes.Equal(have.Value, want.Value) && have.Parent == want.Parent {
		return w, false
	}
	r := want
	r.Version = have.Version
	return store.Write{Record: r}, true
}

// Reconcile compares the namespaces whose epoch has changed, record by record, and copies what differs.
func (m *Mirror) Reconcile(ctx context.Context) error {
	began := time.Now()
	var ids []string
	for _, st := range []store.Store{m.cfg.To, m.cfg.From} { // both, to find what the source no longer has
		some, err := namespaces(ctx, st)
		if err != nil {
			return err
		}
		ids = append(ids, some...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	configured, err := m.sound(ctx, append([]string{store.Registry}, ids...))
	if err != nil {
		return err
	}
	// First, so that a change that is still accepted is found below.
	if configured { // otherwise it may be the wrong source
		for _, id := range append([]string{store.Registry}, ids...) {
			if err := source.Set(ctx, m.cfg.To, id, m.cfg.Source); err != nil {
				return err
			}
		}
	}
	if err := m.namespace(ctx, store.Registry, source.RegistryKinds); err != nil {
		return err
	}
	for _, id := range ids {
		if err := m.namespace(ctx, id, source.NamespaceKinds); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.equal = began, true
	return nil
}

// errNew reports a source that is not the one that the cell was configured from: copying it would delete everything
// that the cell has.
var errNew = errors.New(
	"the source was never configured, but the cell was: the cell keeps its configuration; check the address of the " +
		"source",
)

// sound checks whether the target can have been made from the source, and returns whether the source was written to: it
// was, or the target was not either.
func (m *Mirror) sound(ctx context.Context, ids []string) (configured bool, err error) {
	for _, st := range []store.Store{m.cfg.From, m.cfg.To} {
		epochs, err := lastgood.Epochs(ctx, st, ids...)
		if err != nil {
			return false, err
		}
		written := slices.ContainsFunc(epochs, func(n uint64) bool { return n > 0 })
		switch {
		case st == m.cfg.From && written:
			return true, nil
		case st == m.cfg.To && written:
			return false, errNew
		}
	}
	return false, nil
}

// namespaces returns the ids of all namespaces of a store.
func namespaces(ctx context.Context, st store.Store) ([]string, error) {
	ids := []string{weir.DefaultNamespace}
	for r, err := range store.All(ctx, st, store.Query{Namespace: store.Registry, Kind: store.KindNamespaceID}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.Key.ID)
	}
	return ids, nil
}

// namespace compares one namespace.
func (m *Mirror) namespace(ctx context.Context, id string, of []store.Kind) error {
	epochs, err := lastgood.Epochs(ctx, m.cfg.From, id)
	if err != nil {
		return err
	}
	epoch := epochs[0]
	m.mu.Lock()
	last, known := m.epochs[id]
	m.mu.Unlock()
	same := known && last.epoch == epoch
	if same && last.settled && time.Since(last.at) < m.cfg.Whole {
		return nil
	}
	for _, kind := range of {
		if err := m.kind(ctx, id, kind); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// An index may lag behind its table, so what was listed at an epoch is listed once more.
	m.epochs[id] = mirrored{epoch, same, time.Now()}
	return nil
}

// Release lets the configuration of a store be changed there, because this process does not mirror another one into it.
func Release(ctx context.Context, st store.Store) error {
	for _, id := range []string{store.Registry, weir.DefaultNamespace} {
		if from, err := source.Of(ctx, st, id); err != nil || from != "" {
			return errors.Join(err, release(ctx, st))
		}
	}
	return nil
}

func release(ctx context.Context, st store.Store) error {
	ids, err := namespaces(ctx, st)
	for _, id := range append(ids, store.Registry) {
		err = errors.Join(err, source.Set(ctx, st, id, ""))
	}
	return err
}

// kind compares the records of one kind.
func (m *Mirror) kind(ctx context.Context, id string, kind store.Kind) error {
	have, err := all(ctx, m.cfg.To, id, kind)
	if err != nil {
		return err
	}
	want, err := all(ctx, m.cfg.From, id, kind)
	if err != nil {
		return err
	}
	var differ []store.Key
	for key, w := range want {
		if h, ok := have[key]; !ok || !bytes.Equal(h.Value, w.Value) || h.Parent != w.Parent {
			differ = append(differ, key)
		}
	}
	for key := range have {
		if _, ok := want[key]; !ok {
			differ = append(differ, key)
		}
	}
	slices.SortFunc(differ, store.Key.Compare)
	for _, key := range differ { // reread in the right order: the lists were read in another, and a while ago
		if err := m.copy(ctx, key); err != nil {
			return fmt.Errorf("copy %s: %w", key, err)
		}
	}
	return nil
}

// all returns the records of one kind.
func all(ctx context.Context, st store.Store, id string, kind store.Kind) (map[store.Key]store.Record, error) {
	records := make(map[store.Key]store.Record)
	for r, err := range store.All(ctx, st, store.Query{Namespace: id, Kind: kind}) {
		if err != nil {
			return nil, err
		}
		records[r.Key] = r
	}
	return records, nil
}
