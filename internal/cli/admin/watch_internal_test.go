package admin

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"charm.land/lipgloss/v2"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/testkit/redirecttest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestPictures draws server data on terminals of two sizes. go test -run TestPictures -update writes the files.
func TestPictures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		data          string
		picture       picture
		color         bool
		width, height int
	}{
		"overview-80x24":  {"overview.json", &overviewPicture{server: "127.0.0.1:8080"}, false, 80, 24},
		"overview-120x40": {"overview.json", &overviewPicture{server: "127.0.0.1:8080"}, true, 120, 40},
		"limits-80x24":    {"state.json", &limitsPicture{entity: "key-alice", resource: "gpt-4"}, true, 80, 24},
		"limits-30x10":    {"state.json", &limitsPicture{entity: "key-alice", resource: "gpt-4"}, false, 30, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				data, err := os.ReadFile("testdata/watch/" + tt.data)
				if err != nil {
					t.Fatal(err)
				}
				if err := tt.picture.read(data); err != nil {
					t.Fatal(err)
				}
				a := &kit.Run{Out: &term.Screen{W: new(bytes.Buffer), Terminal: true, Color: tt.color, Width: tt.width}, Namespace: "default"}
				lines := tt.picture.draw(a, tt.width, tt.height)
				if len(lines) > tt.height {
					t.Errorf("%d lines", len(lines))
				}
				for i, line := range lines {
					if w := lipgloss.Width(line); w > tt.width && tt.width >= 80 {
						t.Errorf("line %d has %d columns: %q", i, w, line)
					}
					lines[i] = strings.TrimRight(line, " ")
				}
				got := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", "\x1b", "␛")
				file := filepath.Join("testdata", "watch", name+".golden")
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if got != string(want) {
					t.Errorf("got\n%swant\n%s", got, want)
				}
			})
		})
	}
}

// A redirect is not followed: the token is for the server that was named.
func TestWatchRedirected(t *testing.T) {
	t.Parallel()
	err := events{redirecttest.Start(t), "secret", nil}.run(t.Context(), false, nil)
	if err == nil || !strings.Contains(err.Error(), "307") {
		t.Error(err)
	}
}
