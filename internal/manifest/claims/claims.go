// Package claims describes declared records that other manifests manage.
package claims

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// Claim is a declared record that another manifest manages.
type Claim struct {
	Target   string `json:"target"`      // as in a plan's changes
	Declared string `json:"declared_at"` // file and line
	By       string `json:"managed_by"`
}

// Error reports that a manifest declares records that others manage.
type Error struct {
	Manifest string
	Claims   []Claim
	LeftOut  int // of Claims, if it was received in an answer

	text string // as received
}

// Error names the first of the records, and what to do.
func (e *Error) Error() string {
	if e.text != "" {
		return e.text
	}
	first, others := e.Claims[0], make(map[string]bool)
	for _, c := range e.Claims {
		others[c.By] = true
	}
	where := fmt.Sprintf("%s (%s)", first.Target, first.Declared)
	from := strictyaml.TextList(slices.Sorted(maps.Keys(others)))
	if len(e.Claims) == 1 {
		return fmt.Sprintf("%s is managed by manifest %s: declare it in one of the two, or move it here with "+
			"moved: {from: %s}", where, strictyaml.Quote(first.By), from)
	}
	return fmt.Sprintf("%d records that manifest %s declares are managed by others, such as %s by manifest %s: "+
		"declare each in one of them, or move them here with moved: {from: %s}", len(e.Claims),
		strictyaml.Quote(e.Manifest), where, strictyaml.Quote(first.By), from)
}

// Is reports whether target is [weir.ErrConflict].
func (e *Error) Is(target error) bool { return target == weir.ErrConflict }

// most bounds the claims in an answer: about 100 KB.
const most = 500

// Sent is what an answer has of an error.
type Sent struct {
	Conflicts []Claim `json:"conflicts,omitempty"`
	LeftOut   int     `json:"conflicts_left_out,omitempty"` // of Conflicts, for lack of room
}

// Sent returns the first claims, for an answer.
func (e *Error) Sent() Sent {
	n := min(len(e.Claims), most)
	return Sent{e.Claims[:n], len(e.Claims) - n}
}

// Received returns the error of which an answer has s and the text; nil if it has no claims.
func (s Sent) Received(text string) error {
	if len(s.Conflicts) == 0 {
		return nil
	}
	return &Error{Claims: s.Conflicts, LeftOut: s.LeftOut, text: text}
}
