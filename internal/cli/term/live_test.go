package term_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/cli/term"
)

func TestBar(t *testing.T) {
	t.Parallel()
	s := &term.Screen{W: new(bytes.Buffer)}
	for share, want := range map[float64]string{
		-1: "░░░░", 0: "░░░░", 0.001: "█░░░", 0.5: "██░░", 0.999: "███░", 1: "████", 7: "████",
	} {
		if got := s.Bar(share, 4); got != want {
			t.Errorf("%v: %s, want %s", share, got, want)
		}
	}
}

func TestSpark(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values []float64
		width  int
		want   string
		top    float64
	}{
		{nil, 5, "", 0},
		{[]float64{0, 0}, 5, "▁▁", 0},
		{[]float64{0, 1, 50, 100}, 5, "▁▂▅█", 100},
		{[]float64{9, 0, 0, 4, 4}, 3, "█▁▅", 9}, // the newest are complete
		{[]float64{1}, 0, "", 0},
	} {
		if got, top := term.Spark(tt.values, tt.width); got != tt.want || top != tt.top {
			t.Errorf("%v in %d: %q up to %v, want %q up to %v", tt.values, tt.width, got, top, tt.want, tt.top)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"ab": "ab  ", "abcd": "abcd", "abcde": "abc…", "日本語": "日… "} {
		if got := term.Fit(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := term.NewLive(&term.Screen{W: &out, Terminal: true, Width: 5}, strings.NewReader("q"))
	if !strings.Contains(out.String(), "\x1b[?1049h") {
		t.Errorf("begins with %q", out.String())
	}
	out.Reset()
	l.Draw([]string{"one", "\x1b[31mtoo long\x1b[m"})
	if got := out.String(); !strings.Contains(got, "\x1b[H\x1b[2Kone\r\n\x1b[2K\x1b[31mtoo l\x1b[m\x1b[J") {
		t.Errorf("draws %q", got)
	}
	out.Reset()
	l.Draw(make([]string, 100))
	if n := strings.Count(out.String(), "\r\n"); n != 23 {
		t.Errorf("draws %d lines more than one", n)
	}
	out.Reset()
	l.Close()
	if got := out.String(); !strings.HasSuffix(got, "\x1b[?1049l") || !strings.Contains(got, "\x1b[?25h") {
		t.Errorf("ends with %q", got)
	}
}
