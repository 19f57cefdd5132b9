package weir

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// Revision is one complete application of a manifest.
type Revision struct {
	Manifest string    `json:"manifest"`
	Revision int       `json:"revision"` // 1, 2, …
	Hash     string    `json:"hash"`     // of the text
	At       time.Time `json:"at"`
	By       string    `json:"by"`      // see WithPrincipal
	Summary  string    `json:"summary"` // for people
}

// RevisionQuery selects the revisions of one manifest, or the last revision of each manifest.
type RevisionQuery struct {
	Manifest string // "" selects the last revision of every manifest, by name
	After    string // RevisionPage.Next of the previous page
	Max      int    // maximum number of revisions; 0 means 100, more than 1,000 means 1,000
}

// RevisionPage is one page of revisions. It may hold fewer than requested. Next is "" on the last page.
type RevisionPage struct {
	Revisions []Revision `json:"revisions"`
	Next      string     `json:"next,omitempty"`
}

// revisionRecord is a revision in the catalog; its manifest and number are in the key.
type revisionRecord struct {
	Hash    string    `json:"hash"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Summary string    `json:"summary"`
	Parts   int       `json:"parts"` // of the compressed text
}

// textRecord is a part of a revision's text.
type textRecord struct {
	Gzip []byte `json:"gzip"` // base64
}

// maxPart is the number of bytes of compressed text in one record; base64 adds a third.
const maxPart = store.MaxValue * 11 / 16

func revisionKey(space, manifest string, revision int) store.Key {
	return store.Key{Namespace: space, Kind: store.KindRevision, ID: manifest, Sub: fmt.Sprintf("%09d", revision)}
}

func textKey(space, manifest string, revision, part int) store.Key {
	return store.Key{
		Namespace: space, Kind: store.KindRevisionText, ID: manifest, Sub: fmt.Sprintf("%09d.%04d", revision, part),
	}
}

// Revisions returns the revisions of a manifest, newest first, or the last revision of each manifest. A manifest that
// was never applied to the end has none.
//
// Errors: [ErrBadCursor], [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) Revisions(ctx context.Context, query RevisionQuery) (RevisionPage, error) {
	q := store.Query{Kind: store.KindManifest, After: query.After, Max: query.Max}
	if query.Manifest != "" {
		if err := checkID("manifest", query.Manifest); err != nil {
			return RevisionPage{}, err
		}
		q.Kind, q.ID, q.Reverse = store.KindRevision, query.Manifest, true
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return RevisionPage{}, err
	}
	q.Namespace = s.id
	page, err := l.admin().list(ctx, q)
	if err != nil {
		return RevisionPage{}, err
	}
	out := RevisionPage{Next: page.Next}
	for _, r := range page.Records {
		if r.Key.Kind == store.KindManifest {
			m, err := manifestOf(r)
			if err != nil {
				return RevisionPage{}, err
			}
			if m.Last.Revision > 0 {
				out.Revisions = append(out.Revisions, m.Last)
			}
			continue
		}
		rev, _, err := revisionOf(r)
		if err != nil {
			return RevisionPage{}, err
		}
		out.Revisions = append(out.Revisions, rev)
	}
	return out, nil
}

func revisionOf(r store.Record) (Revision, revisionRecord, error) {
	var rr revisionRecord
	if err := decodeRecord(r, &rr); err != nil {
		return Revision{}, rr, err
	}
	n, err := strconv.Atoi(r.Key.Sub)
	if err != nil {
		return Revision{}, rr, unreadable(r, err)
	}
	return Revision{r.Key.ID, n, rr.Hash, rr.At, rr.By, rr.Summary}, rr, nil
}

// Revision returns a revision of a manifest, and its text. Revision 0 means the last one.
//
// Errors: [ErrNotFound], [*ConfigError], store errors.
func (l *Limiter) Revision(ctx context.Context, manifest string, revision int) (Revision, []byte, error) {
	if err := checkID("manifest", manifest); err != nil {
		return Revision{}, nil, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return Revision{}, nil, err
	}
	if revision == 0 {
		m, err := l.admin().manifest(ctx, s.id, manifest)
		if err != nil {
			return Revision{}, nil, err
		}
		revision = m.Last.Revision
	}
	r, err := l.admin().get(ctx, revisionKey(s.id, manifest, revision))
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
	var packed bytes.Buffer
	for part := range rr.Parts {
		p, err := l.admin().get(ctx, textKey(s.id, manifest, revision, part))
		if err != nil {
			return rev, nil, err
		}
		var text textRecord
		if err := decodeRecord(p, &text); err != nil {
			return rev, nil, err
		}
		packed.Write(text.Gzip)
	}
	unpack, err := gzip.NewReader(&packed)
	if err != nil {
		return rev, nil, unreadable(r, err)
	}
	text, err := io.ReadAll(unpack)
	if err != nil {
		return rev, nil, unreadable(r, err)
	}
	return rev, text, nil
}

// putText writes the text of a revision to be recorded. It overwrites what an interrupted writer left.
func (c *core) putText(ctx context.Context, space, manifest string, revision int, text []byte) (parts int, err error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(text) // into memory
	_ = w.Close()
	for packed.Len() > 0 {
		key := textKey(space, manifest, revision, parts)
		part := bytes.Clone(packed.Next(maxPart))
		err := c.retry(ctx, "text of manifest "+strconv.Quote(manifest), func() error {
			r, err := c.get(ctx, key)
			if err != nil {
				return err
			}
			return c.commit(ctx, space, nil, put(key, r.Version, textRecord{part}))
		})
		if err != nil {
			return parts, err
		}
		parts++
	}
	return parts, nil
}

// LockedError reports that another process is applying the manifest.
type LockedError struct {
	Manifest string
	By       string    // the holder of the lock; see WithPrincipal
	Until    time.Time // when the lock expires
}

// Error names the manifest, the holder of the lock, and when it expires.
func (e *LockedError) Error() string {
	return fmt.Sprintf("manifest %q is being applied by %s: retry when they are done, or at %s when the lock expires",
		e.Manifest, strings.TrimSpace(e.By), e.Until.UTC().Format(time.RFC3339))
}

// Is reports whether target is [ErrConflict].
func (e *LockedError) Is(target error) bool { return target == ErrConflict }

// LastRevision returns the last revision of a manifest. Its Revision is 0 if the manifest was never applied to the end.
//
// Errors: [*ConfigError], [ErrNotFound] if the namespace does not exist, store errors.
func (l *Limiter) LastRevision(ctx context.Context, manifest string) (Revision, error) {
	if err := checkID("manifest", manifest); err != nil {
		return Revision{}, err
	}
	s, err := l.space(ctx, l.admin().elapsed())
	if err != nil {
		return Revision{}, err
	}
	m, err := l.admin().manifest(ctx, s.id, manifest)
	return m.Last, err
}
