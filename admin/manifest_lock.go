package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/revision"
	"github.com/weirlimits/weir/store"
)

// ManifestLock keeps others from applying the same manifest at the same time, from writing over its revisions, and from
// rolling back its rollout. Other records are protected by the versions that [Manifests.Declare] asserts.
type ManifestLock struct {
	catalog catalog
	space   string
	ttl     time.Duration
	token   string
	m       manifestState
}

// manifestState is a manifest's record, decoded.
type manifestState struct {
	key     store.Key
	version uint64
	last    Revision
	rec     record.Manifest
}

func (s *Manifests) read(ctx context.Context, space, name string) (manifestState, error) {
	r, err := s.get(ctx, record.ManifestKey(space, name))
	if err != nil {
		return manifestState{}, err
	}
	return manifestOf(r)
}

func manifestOf(r store.Record) (m manifestState, err error) {
	m.key, m.version = r.Key, r.Version
	if r.Version != 0 {
		err = record.Decode(r, &m.rec)
	}
	m.last = Revision{r.Key.ID, m.rec.Revision, m.rec.Hash, m.rec.At, m.rec.By, m.rec.Summary}
	return m, err
}

// Lock takes the lock of a manifest for ttl, at least a second. If the process ends without [ManifestLock.Release],
// others must wait until ttl has passed, by this process's clock. While another process holds the lock, the error is a
// [*LockedError]. The methods of a ManifestLock return [weir.ErrConflict] if the lock was lost.
func (s *Manifests) Lock(ctx context.Context, name string, ttl time.Duration) (*ManifestLock, error) {
	if err := checkID("manifest", name); err != nil {
		return nil, err
	}
	if ttl < time.Second {
		return nil, configErr("ttl", "must be at least 1s: %s", ttl)
	}
	space, err := s.space(ctx)
	if err != nil {
		return nil, err
	}
	k := &ManifestLock{catalog: s.catalog, space: space, ttl: ttl, token: rand.Text()}
	err = policy.Retry(ctx, "lock of manifest "+strconv.Quote(name), func() (err error) {
		if k.m, err = s.read(ctx, space, name); err != nil {
			return err
		}
		if held := k.m.rec.Lock; held != nil && time.Now().Before(held.Until) {
			return &LockedError{Manifest: name, By: held.By, Until: held.Until}
		}
		k.m.rec.Lock = &record.Lock{Token: k.token, By: record.Principal(ctx)}
		return k.extend(ctx)
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Last returns the manifest's last revision at the time the lock was taken. Its Revision is 0 if there is none.
func (k *ManifestLock) Last() Revision { return k.m.last }

// Extend makes the lock last for its ttl from now.
func (k *ManifestLock) Extend(ctx context.Context) error { return k.lost(k.extend(ctx)) }

func (k *ManifestLock) extend(ctx context.Context) error {
	k.m.rec.Lock.Until = record.Stamp().Add(k.ttl)
	return k.put(ctx, nil)
}

// put writes the manifest's record. The lock relies on nobody else having written it since.
func (k *ManifestLock) put(ctx context.Context, events []record.Event, more ...store.Write) error {
	err := revision.Again(ctx, k.catalog.parts.Store, k.m.key, k.token, &k.m.version, func() error {
		return k.catalog.commit(ctx, k.space, events, append(more, record.Put(k.m.key, k.m.version, k.m.rec))...)
	})
	if err == nil {
		k.m.version++
	}
	return err
}

// Rollout returns the state stored by [ManifestLock.SetRollout]; nil if no rollout is in progress.
func (k *ManifestLock) Rollout() json.RawMessage { return k.m.rec.Rollout }

// SetRollout stores the state of a gradual rollout with the manifest, for the next holder of the lock. The state is at
// most 200 KiB; nil removes it, and so does Record. SetRollout makes the lock last for its ttl from now.
func (k *ManifestLock) SetRollout(ctx context.Context, state json.RawMessage) error {
	if len(state) > maxRollout {
		return configErr("rollout", "of %d bytes is too large: roll out fewer changes at a time", len(state))
	}
	if k.m.rec.Lock == nil {
		return fmt.Errorf("keep a rollout: the lock was released: %w", weir.ErrConflict)
	}
	k.m.rec.Rollout = state
	return k.lost(k.extend(ctx))
}

const maxRollout = 200 << 10

// Managed returns the list that SetManaged stored; nil if it is not known what the manifest manages.
func (k *ManifestLock) Managed(ctx context.Context) ([]RecordID, error) {
	s, err := k.catalog.state(ctx, k.space, &k.m)
	return s.Managed, err
}

// SetManaged stores which records the manifest manages, for [Manifests.State]: before a change that adds to them, with
// those that it adds. The list may have more than these.
func (k *ManifestLock) SetManaged(ctx context.Context, all []RecordID) error {
	if k.m.rec.Lock == nil {
		return fmt.Errorf("list what a manifest manages: the lock was released: %w", weir.ErrConflict)
	}
	list, err := k.catalog.text(k.space, &k.m, 0).List(ctx, k.m.rec.Managed, all)
	if err != nil || list == k.m.rec.Managed {
		return k.lost(err)
	}
	k.m.rec.Managed = list
	return k.lost(k.extend(ctx))
}

// Record adds a revision that was applied to the end, and releases the lock. It sets Manifest, Revision, At and By.
func (k *ManifestLock) Record(ctx context.Context, rev Revision, text []byte) (Revision, error) {
	if k.m.rec.Lock == nil {
		return rev, fmt.Errorf("record a revision: the lock was released: %w", weir.ErrConflict)
	}
	last := k.m.last
	rev.Manifest, rev.Revision, rev.At, rev.By = k.m.key.ID, last.Revision+1, record.Stamp(), record.Principal(ctx)
	parts, err := k.catalog.text(k.space, &k.m, rev.Revision).Write(ctx, text)
	if err != nil {
		return rev, k.lost(err)
	}
	k.m.rec = record.Manifest{
		Revision: rev.Revision, Hash: rev.Hash, At: rev.At, By: rev.By, Summary: rev.Summary, Managed: k.m.rec.Managed,
	}
	ev := record.Event{Action: "manifest.apply", Subject: "manifest:" + rev.Manifest, After: rev}
	if last.Revision > 0 {
		ev.Before = last
	}
	key := record.RevisionKey(k.space, rev.Manifest, rev.Revision)
	rr := record.Revision{Hash: rev.Hash, At: rev.At, By: rev.By, Summary: rev.Summary, Parts: parts}
	return rev, k.lost(k.put(ctx, []record.Event{ev}, record.Put(key, 0, rr)))
}

// Release releases the lock. After Record it does nothing.
func (k *ManifestLock) Release(ctx context.Context) error {
	if k.m.rec.Lock == nil {
		return nil
	}
	if k.m.rec.Lock = nil; k.m.rec.Revision == 0 && k.m.rec.Rollout == nil && k.m.rec.Managed == nil {
		r := store.Record{Key: k.m.key, Version: k.m.version}
		return k.lost(k.catalog.commit(ctx, k.space, nil, record.Remove(r)))
	}
	return k.lost(k.put(ctx, nil))
}

func (k *ManifestLock) lost(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrConflict), errors.Is(err, weir.ErrConflict):
		return fmt.Errorf("the lock of manifest %q was lost: %w", k.m.key.ID, weir.ErrConflict)
	}
	return fmt.Errorf("lock of manifest %q: %w", k.m.key.ID, err)
}

// LockedError reports that another process is applying the manifest. It is [weir.ErrConflict].
type LockedError = revision.LockedError
