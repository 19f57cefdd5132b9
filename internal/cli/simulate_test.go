package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimits/weir/internal/cli"
)

// The guides show what the command prints, except for spacing.
func TestSimulateGuide(t *testing.T) {
	t.Parallel()
	var shown []string
	for _, page := range []string{"try/simulate.md", "try/scale.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		runs := strings.Split(string(text), "\n$ weir simulate ")[1:]
		if len(runs) < 3 {
			t.Fatalf("%d runs are shown in %s", len(runs), page)
		}
		shown = append(shown, runs...)
	}
	for _, run := range shown {
		command, rest, _ := strings.Cut(run, "\n")
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			want, _, _ := strings.Cut(rest, "…")
			var out, errs bytes.Buffer
			if code := cli.Main(t.Context(), append([]string{"simulate"}, strings.Fields(command)...), nil, &out, &errs); code != 0 {
				t.Fatalf("exit code %d: %s", code, &errs)
			}
			got, _, _ := strings.Cut(out.String(), "\nFROM")
			if g, w := strings.Fields(got), strings.Fields(want); strings.Join(g, " ") != strings.Join(w, " ") {
				t.Errorf("it prints\n%s", got)
			}
		})
	}
}
