// Package revision keeps the texts of the revisions of manifests, each in several records.
package revision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Text is the text of a revision.
type Text struct {
	Policies  *policy.Namespace
	From      store.Catalog
	Namespace string // the opaque id
	Manifest  string
	Revision  int
	Held      store.Write // what each write asserts: that the manifest's record is as its lock left it
}

func (t *Text) get(ctx context.Context, part int) (store.Record, error) {
	got, err := t.From.Get(ctx, record.RevisionTextKey(t.Namespace, t.Manifest, t.Revision, part))
	if err != nil {
		return store.Record{}, err
	}
	return got.Records[0], nil
}

// Read returns the text of a revision, which has that many parts.
func (t *Text) Read(ctx context.Context, of store.Record, n int) ([]byte, error) {
	parts := make([]record.RevisionText, n)
	for i := range parts {
		p, err := t.get(ctx, i)
		if err == nil {
			err = record.Decode(p, &parts[i])
		}
		if err != nil {
			return nil, err
		}
	}
	text, err := record.UnpackText(parts)
	if err != nil {
		return nil, record.Unreadable(of, err)
	}
	return text, nil
}

// Write writes the text of a revision to be recorded, and returns the number of its parts. It overwrites what an
// interrupted writer left.
func (t *Text) Write(ctx context.Context, text []byte) (int, error) {
	parts := record.PackText(text)
	for i, part := range parts {
		err := policy.Retry(ctx, "text of manifest "+strconv.Quote(t.Manifest), func() error {
			r, err := t.get(ctx, i)
			if err != nil {
				return err
			}
			return t.Policies.Commit(ctx, t.Namespace, nil, record.Put(r.Key, r.Version, part), t.Held)
		})
		if err != nil {
			return 0, err
		}
	}
	return len(parts), nil
}

// List writes a list of what a manifest manages in place of the one that it has, unless they are equal, and returns
// where it is. It is put to use with the manifest's record.
func (t *Text) List(ctx context.Context, have *record.ManagedList, all any) (*record.ManagedList, error) {
	text := record.Encode(all)
	list := &record.ManagedList{Hash: hash(text)}
	if have != nil && have.Hash == list.Hash {
		return have, nil
	}
	var err error
	list.Parts, err = t.Write(ctx, text)
	return list, err
}

// Listed reads a list, unless it is not the one that was put to use.
func (t *Text) Listed(ctx context.Context, list record.ManagedList, into any) error {
	text, err := t.Read(ctx, store.Record{}, list.Parts)
	switch {
	case errors.Is(err, record.ErrUnreadable): // its writer was interrupted
		return nil
	case err != nil || hash(text) != list.Hash:
		return err
	}
	return json.Unmarshal(text, into)
}

func hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
