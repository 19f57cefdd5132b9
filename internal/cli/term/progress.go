package term

import (
	"fmt"
	"strings"
	"time"
)

// Progress shows the progress of a long operation on one line of a terminal. In a pipe it prints nothing.
type Progress struct {
	screen *Screen
	now    func() time.Time
	last   time.Time
	shown  bool
}

// NewProgress returns a progress line that appears if the operation takes more than a moment.
func NewProgress(s *Screen) *Progress {
	return &Progress{screen: s, now: time.Now, last: time.Now()}
}

const (
	progressEvery = 200 * time.Millisecond
	progressBar   = 24
)

// Update shows what is being done, and the share done from 0 to 1, or negative if unknown.
func (p *Progress) Update(what string, share float64) {
	if !p.screen.Terminal {
		return
	}
	now := p.now()
	if now.Sub(p.last) < progressEvery {
		return
	}
	p.last, p.shown = now, true
	if share < 0 {
		p.screen.Printf("\r\x1b[K%s", what)
		return
	}
	done := int(min(share, 1) * progressBar)
	p.screen.Printf("\r\x1b[K%-10s %s %s", what,
		p.screen.Good(strings.Repeat("━", done))+p.screen.Faint(strings.Repeat("━", progressBar-done)),
		fmt.Sprintf("%3.0f %%", 100*min(share, 1)))
}

// Done removes the line.
func (p *Progress) Done() {
	if p.shown {
		p.screen.Printf("\r\x1b[K")
		p.shown = false
	}
}
