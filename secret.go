package weir

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/weirlimits/weir/store"
)

// secretRecord is a secret in the catalog.
type secretRecord struct {
	Key     []byte    `json:"key"` // base64
	Created time.Time `json:"created"`
}

const signingKeySize = 32

// SigningKey returns the store's key for signing leases that leave the process, 32 bytes. The first call on a store
// creates it; all limiters of the store get the same key.
//
// Errors: [ErrConflict], store errors.
func (l *Limiter) SigningKey(ctx context.Context) ([]byte, error) {
	key := store.Key{Namespace: store.Registry, Kind: store.KindSecret, ID: "leases"}
	var s secretRecord
	err := l.admin().retry(ctx, "signing key", func() error {
		r, err := l.admin().get(ctx, key)
		if err != nil {
			return err
		}
		if r.Version != 0 {
			if err := decodeRecord(r, &s); err != nil {
				return err
			}
			if len(s.Key) != signingKeySize {
				return &StoreError{Op: "read", Key: key.String(), Err: errors.New("is not a signing key of 32 bytes")}
			}
			return nil
		}
		s = secretRecord{Key: make([]byte, signingKeySize), Created: stamp()}
		_, _ = rand.Read(s.Key) // never fails
		ev := event{action: "secret.create", subject: "secret:" + key.ID}
		return l.admin().commit(ctx, store.Registry, []event{ev}, put(key, 0, s))
	})
	if err != nil {
		return nil, err
	}
	return s.Key, nil
}
