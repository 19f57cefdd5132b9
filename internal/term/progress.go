package term

import (
	"fmt"
	"strings"
	"time"
)

// Progress is one line on a terminal that tells how far long work is. In a pipe it is silent.
type Progress struct {
	screen *Screen
	now    func() time.Time
	last   time.Time
	shown  bool
}

// NewProgress returns a progress line that appears once the work takes a moment.
func NewProgress(s *Screen) *Progress {
	return &Progress{screen: s, now: time.Now, last: time.Now()}
}

const (
	progressEvery = 200 * time.Millisecond
	progressBar   = 24
)

// Update shows what is done and which part of it, from 0 to 1; negative means unknown.
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

// Done takes the line away.
func (p *Progress) Done() {
	if p.shown {
		p.screen.Printf("\r\x1b[K")
		p.shown = false
	}
}
