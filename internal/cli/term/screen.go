// Package term formats output for people: aligned tables, color, charts and progress on a terminal, plain text in a
// pipe.
package term

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	"github.com/weirlimits/weir/internal/policy/record"
)

// Screen is the output of a command.
type Screen struct {
	W        io.Writer
	Terminal bool // rather than a pipe or file
	Color    bool // styles are wanted and supported
	Width    int  // columns of the terminal
}

// New detects what w is. Color follows NO_COLOR, CLICOLOR_FORCE and TERM in env.
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

// IsTerminal reports whether r is a terminal.
func IsTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// Printf writes as fmt.Fprintf does.
func (s *Screen) Printf(format string, args ...any) { fmt.Fprintf(s.W, format, args...) }

// Println writes as fmt.Fprintln does.
func (s *Screen) Println(args ...any) { fmt.Fprintln(s.W, args...) }

// Bold styles headers. Like the other styles, it returns the text unchanged if there is no color.
func (s *Screen) Bold(text string) string { return s.styled(lipgloss.NewStyle().Bold(true), text) }

// Faint styles less important text.
func (s *Screen) Faint(text string) string { return s.styled(lipgloss.NewStyle().Faint(true), text) }

// Good styles success.
func (s *Screen) Good(text string) string {
	return s.styled(lipgloss.NewStyle().Foreground(lipgloss.Green), text)
}

// Bad styles failure.
func (s *Screen) Bad(text string) string {
	return s.styled(lipgloss.NewStyle().Foreground(lipgloss.Red), text)
}

func (s *Screen) styled(style lipgloss.Style, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return style.Render(text)
}

// Count formats a number: 12,345 on a terminal, 12345 for programs.
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

// Clean escapes characters that would move the cursor or break a table, or that cannot be seen.
func Clean(text string) string { return record.Visible(text) }
