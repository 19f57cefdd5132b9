package term

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(0, 0)
	p := &Progress{screen: &Screen{W: &out, Terminal: true}, now: func() time.Time { return now }, last: now}
	p.Update("reading", 0.1)
	if out.Len() != 0 {
		t.Errorf("short work is not worth a line: %q", out.String())
	}
	now = now.Add(time.Second)
	p.Update("reading", 0.5)
	if !strings.Contains(out.String(), "reading") || !strings.HasSuffix(out.String(), " 50 %") {
		t.Errorf("%q", out.String())
	}
	shown := out.Len()
	p.Update("reading", 0.51)
	if out.Len() != shown {
		t.Error("again at once")
	}
	now = now.Add(time.Second)
	p.Update("reading", -1)
	if !strings.HasSuffix(out.String(), "\x1b[Kreading") {
		t.Errorf("%q", out.String())
	}
	p.Done()
	p.Done()
	if !strings.HasSuffix(out.String(), "reading\r\x1b[K") {
		t.Errorf("%q", out.String())
	}
}

func TestProgressInPipe(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := NewProgress(&Screen{W: &out})
	p.last = time.Time{}
	p.Update("reading", 0.5)
	p.Done()
	if out.Len() != 0 {
		t.Errorf("%q", out.String())
	}
}
