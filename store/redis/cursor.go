package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/weirlimits/weir/store"
)

// A cursor is where a page ended, behind a mark of the query that it belongs to.
const markSize = 8

func queryMark(query ...any) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", query))
	return string(sum[:markSize])
}

func makeCursor(mark, at string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(mark + at))
}

func parseCursor(mark, cursor string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < markSize || string(raw[:markSize]) != mark {
		return "", store.ErrBadCursor
	}
	return string(raw[markSize:]), nil
}
