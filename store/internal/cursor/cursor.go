// Package cursor makes page cursors: the key at which a page ended, prefixed with a mark of the query it belongs to.
package cursor

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/weirlimits/weir/store"
)

const markSize = 8

// Mark returns a mark that identifies a query. Equal parts give equal marks.
func Mark(query ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", query))
	return string(sum[:markSize])
}

// Make returns the cursor of a page that ended at a key.
func Make(mark, at string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(mark + at))
}

// Parse returns the key at which the previous page ended. Errors: [store.ErrBadCursor], also for a cursor of another
// query.
func Parse(mark, cursor string) (at string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < markSize || string(raw[:markSize]) != mark {
		return "", store.ErrBadCursor
	}
	return string(raw[markSize:]), nil
}
