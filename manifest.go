package weir

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// ManifestLock keeps others from applying the same manifest at the same time. It only saves them work that would be
// refused: records changed by others are protected by the versions that [Limiter.Declare] asserts.
type ManifestLock struct {
	core  *core
	space string
	ttl   time.Duration
	m     manifestState
}

// manifestState is a manifest's record, decoded.
type manifestState struct {
	key     store.Key
	version uint64
	Last    Revision
	rec     manifestRecord
}

// manifestRecord is a manifest in the catalog: its last revision, and who is applying it.
type manifestRecord struct {
	Revision int         `json:"revision,omitempty"`
	Hash     string      `json:"hash,omitempty"`
	At       time.Time   `json:"at,omitzero"`
	By       string      `json:"by,omitempty"`
	Summary  string      `json:"summary,omitempty"`
	Lock     *lockRecord `json:"lock,omitempty"`
	// Rollout is the state needed to continue or undo a gradual rollout.
	Rollout json.RawMessage `json:"rollout,omitempty"`
}

type lockRecord struct {
	Token string    `json:"token"`
	By    string    `json:"by"`
	Until time.Time `json:"until"`
}

func manifestKey(space, name string) store.Key {
	return store.Key{Namespace: space, Kind: store.KindManifest, ID: name}
}

func (c *core) manifest(ctx context.Context, space, name string) (manifestState, error) {
	r, err := c.get(ctx, manifestKey(space, name))
	if err != nil {
		return manifestState{}, err
	}
	return manifestOf(r)
}

func manifestOf(r store.Record) (manifestState, error) {
	m := manifestState{key: r.Key, version: r.Version}
	if r.Version != 0 {
		if err := decodeRecord(r, &m.rec); err != nil {
			return m, err
		}
	}
	m.Last = Revision{r.Key.ID, m.rec.Revision, m.rec.Hash, m.rec.At, m.rec.By, m.rec.Summary}
	return m, nil
}

// LockManifest takes the lock of a manifest for ttl, at least a second. If the process ends without
// [ManifestLock.Release], others must wait until ttl has passed, by this process's clock.
//
// Errors: [*LockedError] while another process holds the lock, [*ConfigError], [ErrConflict], [ErrNotFound] if the
// namespace does not exist, store errors.
func (l *Limiter) LockManifest(ctx context.Context, name string, ttl time.Duration) (*ManifestLock, error) {
	if err := checkID("manifest", name); err != nil {
		return nil, err
	}
	if ttl < time.Second {
		return nil, configErr("ttl", "must be at least 1s: %s", ttl)
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return nil, err
	}
	k := &ManifestLock{core: l.admin(), space: s.id, ttl: ttl}
	err = l.admin().retry(ctx, "lock of manifest "+strconv.Quote(name), func() (err error) {
		if k.m, err = l.admin().manifest(ctx, s.id, name); err != nil {
			return err
		}
		if held := k.m.rec.Lock; held != nil && time.Now().Before(held.Until) {
			return &LockedError{name, held.By, held.Until}
		}
		k.m.rec.Lock = &lockRecord{Token: rand.Text(), By: record.Principal(ctx)}
		return k.extend(ctx)
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Last returns the manifest's last revision at the time the lock was taken. Its Revision is 0 if there is none.
func (k *ManifestLock) Last() Revision { return k.m.Last }

// Extend makes the lock last for its ttl from now.
//
// Errors: [ErrConflict] if the lock was lost, store errors.
func (k *ManifestLock) Extend(ctx context.Context) error { return k.lost(k.extend(ctx)) }

func (k *ManifestLock) extend(ctx context.Context) error {
	k.m.rec.Lock.Until = stamp().Add(k.ttl)
	return k.put(ctx, nil)
}

// put writes the manifest's record. The lock relies on nobody else having written it since.
func (k *ManifestLock) put(ctx context.Context, events []event, more ...store.Write) error {
	err := k.core.commit(ctx, k.space, events, append(more, put(k.m.key, k.m.version, k.m.rec))...)
	if err == nil {
		k.m.version++
	}
	return err
}

// Rollout returns the state stored by [ManifestLock.SetRollout]; nil if no rollout is in progress.
func (k *ManifestLock) Rollout() json.RawMessage { return k.m.rec.Rollout }

// SetRollout stores the state of a gradual rollout with the manifest, for the next holder of the lock. The state is at
// most 200 KiB; nil removes it, and so does Record. SetRollout makes the lock last for its ttl from now.
//
// Errors: [*ConfigError], [ErrConflict] if the lock was lost, store errors.
func (k *ManifestLock) SetRollout(ctx context.Context, state json.RawMessage) error {
	if len(state) > maxRollout {
		return configErr("rollout", "of %d bytes is too large: roll out fewer changes at a time", len(state))
	}
	if k.m.rec.Lock == nil {
		return fmt.Errorf("keep a rollout: the lock was released: %w", ErrConflict)
	}
	k.m.rec.Rollout = state
	return k.lost(k.extend(ctx))
}

const maxRollout = 200 << 10

// Record adds a revision that was applied to the end, and releases the lock. It sets Manifest, Revision, At and By.
//
// Errors: [ErrConflict] if the lock was lost, store errors.
func (k *ManifestLock) Record(ctx context.Context, rev Revision, text []byte) (Revision, error) {
	if k.m.rec.Lock == nil {
		return rev, fmt.Errorf("record a revision: the lock was released: %w", ErrConflict)
	}
	last := k.m.Last
	rev.Manifest, rev.Revision, rev.At, rev.By = k.m.key.ID, last.Revision+1, stamp(), record.Principal(ctx)
	parts, err := k.core.putText(ctx, k.space, rev.Manifest, rev.Revision, text)
	if err != nil {
		return rev, err
	}
	k.m.rec = manifestRecord{Revision: rev.Revision, Hash: rev.Hash, At: rev.At, By: rev.By, Summary: rev.Summary}
	ev := event{action: "manifest.apply", subject: "manifest:" + rev.Manifest, after: rev}
	if last.Revision > 0 {
		ev.before = last
	}
	rr := revisionRecord{rev.Hash, rev.At, rev.By, rev.Summary, parts}
	return rev, k.lost(k.put(ctx, []event{ev}, put(revisionKey(k.space, rev.Manifest, rev.Revision), 0, rr)))
}

// Release releases the lock. After Record it does nothing.
//
// Errors: [ErrConflict] if the lock was lost, store errors.
func (k *ManifestLock) Release(ctx context.Context) error {
	if k.m.rec.Lock == nil {
		return nil
	}
	if k.m.rec.Lock = nil; k.m.rec.Revision == 0 && k.m.rec.Rollout == nil {
		r := store.Record{Key: k.m.key, Version: k.m.version}
		return k.lost(k.core.commit(ctx, k.space, nil, remove(r)))
	}
	return k.lost(k.put(ctx, nil))
}

func (k *ManifestLock) lost(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrConflict):
		return fmt.Errorf("the lock of manifest %q was lost: %w", k.m.key.ID, ErrConflict)
	}
	return fmt.Errorf("lock of manifest %q: %w", k.m.key.ID, err)
}
