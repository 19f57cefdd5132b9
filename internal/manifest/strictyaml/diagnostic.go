package strictyaml

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirlimits/weir/internal/clock/nearest"
)

// Diagnostic is a mistake in a file: where it is, what it is, and what to write instead.
type Diagnostic struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1, in characters
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`    // what is allowed or was probably meant
	Excerpt string `json:"excerpt,omitempty"` // the line
	width   int    // of what the caret underlines, in characters
}

// String formats the mistake in several lines, with a caret below its place.
func (d *Diagnostic) String() string {
	var b strings.Builder
	b.WriteString(d.head())
	if d.Excerpt != "" {
		line, at, width := d.window()
		number := fmt.Sprintf("%5d", d.Line)
		fmt.Fprintf(&b, "\n%s | %s\n      | %s%s", number, line, strings.Repeat(" ", at), strings.Repeat("^", width))
	}
	if d.Hint != "" {
		b.WriteString("\n      = " + d.Hint)
	}
	return b.String()
}

// head returns the first line.
func (d *Diagnostic) head() string {
	text := d.Message
	if d.Path != "" {
		text = d.Path + ": " + text
	}
	return fmt.Sprintf("%s:%d:%d: %s", d.File, d.Line, d.Column, text)
}

// maxExcerpt is how many characters of a line are shown.
const maxExcerpt = 100

// window returns the visible part of the line, and the position of the caret in it.
func (d *Diagnostic) window() (line string, at, width int) {
	rs := []rune(d.Excerpt)
	at = min(max(d.Column-1, 0), len(rs))
	from := 0
	if at > maxExcerpt*3/4 {
		from = at - maxExcerpt/2
	}
	rs = rs[from:min(len(rs), from+maxExcerpt)]
	at -= from
	for i, r := range rs {
		if r < ' ' || r == 0x7f {
			rs[i] = ' '
		}
	}
	return string(rs), at, max(1, min(d.width, len(rs)-at))
}

// Errors holds all mistakes in some files, ordered by file and position.
type Errors []*Diagnostic

// Error returns one line with the number of mistakes and the first one.
func (e Errors) Error() string {
	first := e[0].head()
	if len(e) == 1 {
		return first
	}
	return fmt.Sprintf("%d errors, the first at %s", len(e), first)
}

// Allowed lists what is allowed and, if one of them is similar, what was probably meant.
func Allowed(got string, allowed []string) string {
	text := "allowed: " + strings.Join(allowed, ", ")
	if near := nearest.To(got, allowed); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}

// Quote returns an ID as it is if it is plain, and quoted otherwise.
func Quote(id string) string {
	plain := id != "" && !strings.ContainsFunc(id, func(r rune) bool {
		return r <= ' ' || r == '"' || r == '\'' || r == ',' || !strconv.IsPrint(r)
	})
	if plain {
		return id
	}
	return strconv.Quote(id)
}
