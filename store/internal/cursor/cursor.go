// Package cursor makes page cursors: the position of the last entry of a page, prefixed with a mark of the query it
// belongs to. Clients can make up a position, but none that its query cannot have.
package cursor

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/varint"
)

const markSize = 8

// List makes and reads the cursors of one query.
type List struct {
	mark            string
	id, prefix, sub string // those of every entry; "" is any
	from, to        int64  // starts of the first window, and of the first that is no longer listed
}

// Position is that of an entry in its list: its names and, of usage, the start of its window in Unix seconds.
type Position struct {
	ID, Sub string
	Start   int64
}

// OfRecords returns the cursors of a list of records.
func OfRecords(q *store.Query) List {
	mark := markOf("record", q.Namespace, q.Kind, q.ID, q.Prefix, q.Sub, q.Parent, q.Reverse)
	return List{mark: mark, id: q.ID, prefix: q.Prefix, sub: q.Sub, to: 1}
}

// OfBuckets returns the cursors of a list of buckets, whose names are the entity and the resource.
func OfBuckets(q *store.BucketQuery) List {
	return List{mark: markOf("bucket", q.Namespace, q.Entity, q.Resource), id: q.Entity, sub: q.Resource, to: 1}
}

// OfUsage returns the cursors of a list of usage.
func OfUsage(q *store.UsageQuery) List {
	from := q.Window.Start(q.From)
	if from.Unix() < q.From.Unix() {
		from = q.Window.Next(from)
	}
	return List{
		mark: markOf("usage", q.Namespace, q.Of, q.ID, q.Sub, q.Window, q.From.Unix(), q.To.Unix()),
		id:   q.ID, sub: q.Sub, from: from.Unix(), to: q.To.Add(time.Second - 1).Unix(),
	}
}

// markOf returns a mark that identifies a query. Equal parts give equal marks.
func markOf(query ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", query))
	return string(sum[:markSize])
}

// Make returns the cursor of a page that ended at a position.
func (l List) Make(at Position) string {
	raw := varint.AppendParts([]byte(l.mark), at.ID, at.Sub)
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt(raw, at.Start, 10))
}

// Parse returns the position at which the previous page ended. Errors: [store.ErrBadCursor], also for a cursor of
// another query, and for a position that no entry of this one can have.
func (l List) Parse(cursor string) (at Position, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	rest, ok := bytes.CutPrefix(raw, []byte(l.mark))
	for _, part := range []*string{&at.ID, &at.Sub} {
		if ok {
			*part, rest, ok = varint.CutPart(rest)
		}
	}
	if err == nil {
		at.Start, err = strconv.ParseInt(string(rest), 10, 64)
	}
	if err != nil || !ok || !l.has(at) {
		return Position{}, store.ErrBadCursor
	}
	return at, nil
}

// has reports whether the query can list an entry at a position.
func (l List) has(at Position) bool {
	named := strings.HasPrefix(at.ID, l.prefix)
	if l.id != "" {
		named = at.ID == l.id
	}
	return named && (l.sub == "" || at.Sub == l.sub) && at.Start >= l.from && at.Start < l.to
}
