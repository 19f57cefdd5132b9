// Package term writes for people: aligned tables, colour, charts and progress on a terminal, plain text in a pipe.
package term

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
)

// Screen is where a command writes.
type Screen struct {
	W        io.Writer
	Terminal bool // else a pipe or file
	Color    bool // styles are wanted and can be shown
	Width    int  // columns of the terminal
}

// New finds out what w is. Colour honours NO_COLOR, CLICOLOR_FORCE and TERM as found in env.
func New(w io.Writer, env []string) *Screen {
	s := &Screen{W: w, Width: 80, Color: colorprofile.Detect(w, env) > colorprofile.ASCII}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(f.Fd()) {
		return s
	}
	s.Terminal = true
	if width, _, err := term.GetSize(f.Fd()); err == nil && width > 0 {
		s.Width = width
	}
	return s
}

// IsTerminal reports whether somebody types into r.
func IsTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// Printf writes as fmt.Fprintf does.
func (s *Screen) Printf(format string, args ...any) { fmt.Fprintf(s.W, format, args...) }

// Println writes as fmt.Fprintln does.
func (s *Screen) Println(args ...any) { fmt.Fprintln(s.W, args...) }

// Bold is for headers. Like the other styles it leaves the text alone where there is no colour.
func (s *Screen) Bold(text string) string { return s.styled(lipgloss.NewStyle().Bold(true), text) }

// Faint is for what matters less.
func (s *Screen) Faint(text string) string { return s.styled(lipgloss.NewStyle().Faint(true), text) }

// Good is for what went well.
func (s *Screen) Good(text string) string {
	return s.styled(lipgloss.NewStyle().Foreground(lipgloss.Green), text)
}

// Bad is for what did not.
func (s *Screen) Bad(text string) string {
	return s.styled(lipgloss.NewStyle().Foreground(lipgloss.Red), text)
}

func (s *Screen) styled(style lipgloss.Style, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return style.Render(text)
}

// Count writes a number: 12,345 on a terminal, 12345 for programs.
func (s *Screen) Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	if !s.Terminal {
		return text
	}
	digits := strings.TrimPrefix(text, "-")
	var b strings.Builder
	b.WriteString(text[:len(text)-len(digits)])
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Clean escapes what would move the cursor or break a table.
func Clean(text string) string {
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
