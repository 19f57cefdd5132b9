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
// creates it; all limiters of the store get the same key.
//
// Errors: [weir.ErrConflict], store errors.
func StoredKey(ctx context.Context, lim *weir.Limiter) ([]byte, error) {
	of := parts.Of(lim)
	key := store.Key{Namespace: store.Registry, Kind: store.KindSecret, ID: "leases"}
	var s secret
	err := policy.Retry(ctx, "signing key", func() error {
		got, err := of.Store.Get(ctx, key)
		if err != nil {
			return err
		}
		if r := got.Records[0]; r.Version != 0 {
			if err := record.Decode(r, &s); err != nil {
				return err
			}
			if len(s.Key) != keySize {
				return &weir.StoreError{
					Op: "read", Key: key.String(), Err: errors.New("is not a signing key of 32 bytes"),
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
