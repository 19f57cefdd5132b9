package term_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlimits/weir/internal/cli/term"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everything writes one of each kind to a screen.
func everything(s *term.Screen) {
	t := &term.Table{Header: []string{"ENTITY", "TOKENS", "NOTE"}, Right: []int{1}, Cut: []int{2}}
	t.Row("key-alice", s.Count(1234567), "-")
	t.Row("日本", s.Count(-1000), "tab\there, line\nend, \x1b[31mred")
	t.Row("", s.Count(999), strings.Repeat("long ", 20))
	s.Table(t)
	s.Println()
	s.Pairs("name", "Alice", "on unavailable", "deny")
	s.Println(s.Good("allowed"), s.Bad("refused"), s.Faint("faint"), s.Bold(""))
	if s.Terminal {
		s.Chart([]float64{0, 3, 1, 0, 9, 12, 2, 0, 0, 1}, "09:00", "18:00")
		s.Chart([]float64{5}, "09:00", "09:00")
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, screen := range map[string]term.Screen{
		"terminal": {Terminal: true, Color: true, Width: 60},
		"no_color": {Terminal: true, Width: 60},
		"narrow":   {Terminal: true, Width: 20},
		"pipe":     {Width: 80},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			screen.W = &got
			everything(&screen)
			golden := filepath.Join("testdata", name+".golden")
			text := strings.ReplaceAll(got.String(), "\x1b", "␛")
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNewPipe(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{nil, {"TERM=xterm-256color"}, {"NO_COLOR=1", "TERM=xterm"}} {
		if s := term.New(new(bytes.Buffer), env); s.Terminal || s.Color {
			t.Errorf("%q: terminal %v, colour %v", env, s.Terminal, s.Color)
		}
	}
	// As with GNU ls --color=always: for a pager that shows colours.
	if s := term.New(new(bytes.Buffer), []string{"CLICOLOR_FORCE=1", "TERM=xterm"}); s.Terminal || !s.Color {
		t.Errorf("forced: terminal %v, colour %v", s.Terminal, s.Color)
	}
	if term.IsTerminal(strings.NewReader("")) {
		t.Error("a reader is a terminal")
	}
}
