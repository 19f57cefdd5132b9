package admin

import (
	"context"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/policy"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// Manifests declares entities and limits as a manifest has them, and keeps the manifests' revisions.
type Manifests struct{ catalog }

// Revision is one complete application of a manifest.
type Revision struct {
	Manifest string    `json:"manifest"`
	Revision int       `json:"revision"` // 1, 2, …
	Hash     string    `json:"hash"`     // of the text
	At       time.Time `json:"at"`
	By       string    `json:"by"`      // see [WithPrincipal]
	Summary  string    `json:"summary"` // for people
}

// RevisionQuery selects the revisions of one manifest, or the last revision of each manifest.
type RevisionQuery struct {
	Manifest string // "" selects the last revision of every manifest, by name
	After    string // Next of the previous page
	Max      int    // maximum number of revisions; 0 means 100, more than 1,000 means 1,000
}

// Revisions returns the revisions of a manifest, newest first, or the last revision of each manifest. A manifest that
// was never applied to the end has none.
func (s *Manifests) Revisions(ctx context.Context, query RevisionQuery) (Page[Revision], error) {
	q := store.Query{Kind: store.KindManifest, After: query.After, Max: query.Max}
	if query.Manifest != "" {
		if err := checkID("manifest", query.Manifest); err != nil {
			return Page[Revision]{}, err
		}
		q.Kind, q.ID, q.Reverse = store.KindRevision, query.Manifest, true
	}
	space, err := s.space(ctx)
	if err != nil {
		return Page[Revision]{}, err
	}
	q.Namespace = space
	return pageOf(ctx, s.catalog, q, func(r store.Record) (*Revision, error) {
		if r.Key.Kind == store.KindManifest {
			m, err := manifestOf(r)
			if err != nil || m.last.Revision == 0 {
				return nil, err
			}
			return &m.last, nil
		}
		rev, _, err := revisionOf(r)
		return &rev, err
	})
}

func revisionOf(r store.Record) (Revision, record.Revision, error) {
	var rr record.Revision
	if err := record.Decode(r, &rr); err != nil {
		return Revision{}, rr, err
	}
	n, err := strconv.Atoi(r.Key.Sub)
	if err != nil {
		return Revision{}, rr, record.Unreadable(r, err)
	}
	return Revision{r.Key.ID, n, rr.Hash, rr.At, rr.By, rr.Summary}, rr, nil
}

// Revision returns a revision of a manifest, and its text, or [weir.ErrNotFound]. Revision 0 means the last one.
func (s *Manifests) Revision(ctx context.Context, manifest string, revision int) (Revision, []byte, error) {
	space, err := s.space(ctx, checkID("manifest", manifest))
	if err != nil {
		return Revision{}, nil, err
	}
	if revision == 0 {
		m, err := s.read(ctx, space, manifest)
		if err != nil {
			return Revision{}, nil, err
		}
		revision = m.last.Revision
	}
	r, err := s.get(ctx, record.RevisionKey(space, manifest, revision))
	if err != nil {
		return Revision{}, nil, err
	}
	if r.Version == 0 {
		return Revision{}, nil, notFound("revision "+strconv.Itoa(revision)+" of manifest", manifest)
	}
	rev, rr, err := revisionOf(r)
	if err != nil {
		return rev, nil, err
	}
	parts := make([]record.RevisionText, rr.Parts)
	for i := range parts {
		p, err := s.get(ctx, record.RevisionTextKey(space, manifest, revision, i))
		if err == nil {
			err = record.Decode(p, &parts[i])
		}
		if err != nil {
			return rev, nil, err
		}
	}
	text, err := record.UnpackText(parts)
	if err != nil {
		return rev, nil, record.Unreadable(r, err)
	}
	return rev, text, nil
}

// putText writes the text of a revision to be recorded, and returns the number of its parts. It overwrites what an
// interrupted writer left.
func putText(ctx context.Context, c catalog, space, manifest string, revision int, text []byte) (int, error) {
	parts := record.PackText(text)
	for i, part := range parts {
		err := policy.Retry(ctx, "text of manifest "+strconv.Quote(manifest), func() error {
			r, err := c.get(ctx, record.RevisionTextKey(space, manifest, revision, i))
			if err != nil {
				return err
			}
			return c.commit(ctx, space, nil, record.Put(r.Key, r.Version, part))
		})
		if err != nil {
			return 0, err
		}
	}
	return len(parts), nil
}

// Last returns the last revision of a manifest. Its Revision is 0 if the manifest was never applied to the end.
func (s *Manifests) Last(ctx context.Context, manifest string) (Revision, error) {
	space, err := s.space(ctx, checkID("manifest", manifest))
	if err != nil {
		return Revision{}, err
	}
	m, err := s.read(ctx, space, manifest)
	return m.last, err
}
