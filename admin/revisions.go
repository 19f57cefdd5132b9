package admin

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/policy/revision"
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
func (s *Manifests) Revision(ctx context.Context, manifest string, number int) (Revision, []byte, error) {
	space, err := s.space(ctx, checkID("manifest", manifest))
	if err != nil {
		return Revision{}, nil, err
	}
	m := manifestState{key: record.ManifestKey(space, manifest)}
	if number == 0 {
		if m, err = s.read(ctx, space, manifest); err != nil {
			return Revision{}, nil, err
		}
		number = m.last.Revision
	}
	r, err := s.get(ctx, record.RevisionKey(space, manifest, number))
	if err != nil {
		return Revision{}, nil, err
	}
	if r.Version == 0 {
		return Revision{}, nil, notFound("revision "+strconv.Itoa(number)+" of manifest", manifest)
	}
	rev, rr, err := revisionOf(r)
	if err != nil {
		return rev, nil, err
	}
	text, err := s.text(space, &m, number).Read(ctx, r, rr.Parts)
	return rev, text, err
}

// text returns the text of a revision. It is written only while the manifest's record is as it was read.
func (c catalog) text(space string, m *manifestState, n int) *revision.Text {
	return &revision.Text{
		Policies: c.parts.Policies, From: c.parts.Store, Namespace: space, Manifest: m.key.ID, Revision: n,
		Held: store.Write{Record: store.Record{Key: m.key, Version: m.version}, Check: true},
	}
}

// ManifestState is what is kept of a manifest beside its revisions.
type ManifestState struct {
	Last    Revision        // of Revision 0 if it was never applied to the end
	Rollout json.RawMessage // see [ManifestLock.SetRollout]
	// Managed names all records that the manifest manages, and perhaps others. It is nil if nobody has listed them,
	// because an earlier version of weir applied the manifest last.
	Managed []RecordID
}

// State returns what is kept of a manifest.
func (s *Manifests) State(ctx context.Context, manifest string) (ManifestState, error) {
	space, err := s.space(ctx, checkID("manifest", manifest))
	if err != nil {
		return ManifestState{}, err
	}
	m, err := s.read(ctx, space, manifest)
	if err != nil {
		return ManifestState{}, err
	}
	return s.state(ctx, space, &m)
}

func (c catalog) state(ctx context.Context, space string, m *manifestState) (ManifestState, error) {
	out := ManifestState{Last: m.last, Rollout: m.rec.Rollout}
	switch {
	case m.version == 0:
		out.Managed = []RecordID{}
	case m.rec.Managed != nil:
		return out, c.text(space, m, 0).Listed(ctx, *m.rec.Managed, &out.Managed)
	}
	return out, nil
}
