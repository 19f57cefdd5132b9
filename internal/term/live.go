package term

import (
	"io"
	"os"
	"strings"

	"github.com/charmbracelet/x/term"
)

// Live is a picture that is drawn again and again on a terminal's other screen. What was on the terminal is there again
// once it ends.
type Live struct {
	screen  *Screen
	in, out *os.File
	before  *term.State
	quit    chan struct{}
}

const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the other screen, no cursor, long lines are not wrapped
	leave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	begin = "\x1b[?2026h\x1b[H" // one picture, where the terminal can; from the top
	end   = "\x1b[J\x1b[?2026l"
)

// NewLive begins, on a screen that is a terminal. What is typed, if in is one, too, is not shown.
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

// listen ends when somebody types q, or what interrupts a program.
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

// Quit is closed when somebody has asked for the end.
func (l *Live) Quit() <-chan struct{} { return l.quit }

// Size returns the columns and lines that there are now.
func (l *Live) Size() (width, height int) {
	if l.out != nil {
		if w, h, err := term.GetSize(l.out.Fd()); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return l.screen.Width, 24
}

// Draw replaces the picture. Lines that there is no room for are left out.
func (l *Live) Draw(lines []string) {
	width, height := l.Size()
	var b strings.Builder
	b.WriteString(begin)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("\x1b[2K" + Clip(line, width)) // not after it: in the last column that takes a letter away
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
