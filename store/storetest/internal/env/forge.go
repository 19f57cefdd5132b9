package env

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/weirlimits/weir/store"
)

// Lister returns the ids in a page of a list, and the cursor of the next page.
type Lister func(after string) (ids []string, next string, err error)

// Forge checks that a list of entries of one id, or whose ids begin with it, refuses every cursor with another position
// than theirs, however much of a true cursor it begins with.
func Forge(e *Env, id string, list Lister) {
	e.Helper()
	raw, encode := cursorOf(e, list)
	end := strings.LastIndex(raw, id) + len(id)
	if end < len(id) {
		end = len(raw)
	}
	for i := range end {
		for _, at := range []string{"", "\x00", raw[end:], "alice" + raw[end:], "abe" + raw[end:], "zoe" + raw[end:]} {
			forged := raw[:i] + at
			if forged == "" {
				continue // the first page
			}
			if ids, _, err := list(encode(forged)); !errors.Is(err, store.ErrBadCursor) {
				e.Errorf("the cursor %q, forged of %q, lists %q, error %v", forged, raw, ids, err)
			}
		}
	}
}

// Splice checks that no cursor that is put together of one list's and of another's, whose ids begin with "foreign",
// leads from the one into the other.
func Splice(e *Env, list, foreign Lister) {
	e.Helper()
	raw, encode := cursorOf(e, list)
	other, _ := cursorOf(e, foreign)
	for i := range min(len(raw), len(other)) {
		spliced := raw[:i] + other[i:]
		ids, _, err := list(encode(spliced))
		if err != nil && !errors.Is(err, store.ErrBadCursor) || strings.Contains(strings.Join(ids, " "), "foreign") {
			e.Errorf("the cursor %q lists %q, error %v", spliced, ids, err)
		}
	}
}

// cursorOf returns the content of the cursor of a list's second page, and a function that makes a cursor of a content.
func cursorOf(e *Env, list Lister) (raw string, encode func(string) string) {
	e.Helper()
	_, next, err := list("")
	if err != nil || next == "" {
		e.Fatalf("the cursor of the second page: %q, error %v", next, err)
	}
	if text, err := base64.RawURLEncoding.DecodeString(next); err == nil {
		return string(text), func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	}
	return next, func(s string) string { return s }
}
