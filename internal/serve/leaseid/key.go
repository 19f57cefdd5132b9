package leaseid

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// secret is a secret in the catalog.
type secret struct {
	Key     []byte    `json:"key"` // base64
	Created time.Time `json:"created"`
}

const keySize = 32

// StoredKey returns the store's key for signing leases that leave the process, 32 bytes. The first call on a store
// creates it; all limiters of the store get the same key. A key that an earlier version created stays where it is, in
// the registry, so that processes of both versions use it.
//
// Errors: [weir.ErrConflict], store errors.
func StoredKey(ctx context.Context, lim *weir.Limiter) ([]byte, error) {
	of := parts.Of(lim)
	key := store.Key{Namespace: store.Secrets, Kind: store.KindSecret, ID: "leases"}
	old := store.Key{Namespace: store.Registry, Kind: key.Kind, ID: key.ID}
	var s secret
	err := policy.Retry(ctx, "signing key", func() error {
		r, err := find(ctx, of.Store, key, old)
		if err != nil {
			return err
		}
		if r.Version != 0 {
			if err := record.Decode(r, &s); err != nil {
				return err
			}
			if len(s.Key) != keySize {
				return &weir.StoreError{
					Op: "read", Key: r.Key.String(), Err: errors.New("is not a signing key of 32 bytes"),
				}
			}
			return nil
		}
		s = secret{Key: make([]byte, keySize), Created: record.Stamp()}
		_, _ = rand.Read(s.Key) // never fails
		created := record.Event{Action: "secret.create", Subject: "secret:" + key.ID}
		return of.Policies.Commit(ctx, store.Registry, []record.Event{created}, record.Put(key, 0, s))
	})
	if err != nil {
		return nil, err
	}
	return s.Key, nil
}

// find returns the first of some records that exists, or one of version 0.
func find(ctx context.Context, c store.Catalog, keys ...store.Key) (r store.Record, err error) {
	for _, k := range keys {
		got, err := c.Get(ctx, k)
		if err != nil {
			return r, err
		}
		if r = got.Records[0]; r.Version != 0 {
			break
		}
	}
	return r, nil
}
