package term

import (
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
)

// Live is a picture that is redrawn on a terminal's alternate screen. When it ends, the previous content of the
// terminal is restored.
type Live struct {
	screen  *Screen
	in, out *os.File
	before  *term.State
	quit    chan struct{}
}

const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // alternate screen, no cursor, no line wrapping
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	begin = "\x1b[?2026h\x1b[H" // synchronized update, if the terminal supports it; from the top
	end   = "\x1b[J\x1b[?2026l"
)

// NewLive starts a live picture on a screen that is a terminal. If in is a terminal, typed text is not echoed.
func NewLive(s *Screen, in io.Reader) *Live {
	l := &Live{screen: s, quit: make(chan struct{})}
	l.out, _ = s.W.(*os.File)
	if l.in, _ = in.(*os.File); l.in != nil && IsTerminal(l.in) {
		if state, err := term.MakeRaw(l.in.Fd()); err == nil {
			l.before = state
			go l.listen()
		}
	}
	s.Printf(enter)
	return l
}

// listen ends when the user types q, or a key that interrupts a program.
func (l *Live) listen() {
	var b [64]byte
	for {
		n, err := l.in.Read(b[:])
		if err != nil || strings.ContainsAny(string(b[:n]), "qQ\x03\x04") {
			close(l.quit)
			return
		}
	}
}

// Quit returns a channel that is closed when the user asks to quit.
func (l *Live) Quit() <-chan struct{} { return l.quit }

// Size returns the terminal's current columns and lines.
func (l *Live) Size() (width, height int) {
	if l.out != nil {
		if w, h, err := term.GetSize(l.out.Fd()); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return l.screen.Width, 24
}

// Draw replaces the picture. Lines that do not fit are dropped.
func (l *Live) Draw(lines []string) {
	width, height := l.Size()
	var b strings.Builder
	b.WriteString(begin)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		// Cleared first: in the last column, clearing after it would erase a letter.
		b.WriteString("\x1b[2K" + Clip(line, width))
	}
	b.WriteString(end)
	l.screen.Printf("%s", b.String())
}

// Close restores the terminal.
func (l *Live) Close() {
	l.screen.Printf(leave)
	if l.before != nil {
		_ = term.Restore(l.in.Fd(), l.before)
	}
}
