package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/cli"
)

// varying replaces what differs from run to run: times, durations, whose revision it is, spacing, and how much of a rate has
// been issued again since.
func varying(line string) string {
	for _, r := range []struct{ pattern, with string }{
		{`\d{4}-\d\d-\d\d(T[0-9:.]+Z)?|\w{3} \d+ \w{3} \d{4} \d\d:\d\d`, "DATE"},
		{`\b(\d+h)?(\d+m)?\d+(\.\d+)?(h|m|s|ms|µs)\b`, "TIME"},
		{`DATE by \S+`, "DATE by USER"},
		{`rpm \d+ of`, "rpm N of"},
	} {
		line = regexp.MustCompile(r.pattern).ReplaceAllString(line, r.with)
	}
	return strings.Join(strings.Fields(line), " ")
}

// TestBudgetsGuides runs the commands of guides as printed, in order, and compares what they show of their output; a line
// with … stands for any number of lines.
func TestBudgetsGuides(t *testing.T) {
	t.Parallel()
	for page, commands := range map[string]int{"configure/budgets.md": 5, "integrate/envoy.md": 5, "operate/cost.md": 1} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("../../docs", page))
			if err != nil {
				t.Fatal(err)
			}
			if n := runGuide(t, string(text)); n < commands {
				t.Errorf("it shows %d commands", n)
			}
		})
	}
}

// files are the names by which guides have their last block of YAML.
var files = []string{"budgets.limits.yaml", "mapping.yaml"}

// runGuide runs what a text shows, and returns how many commands that is.
func runGuide(t *testing.T, page string) (ran int) {
	t.Helper()
	dir := t.TempDir()
	page = strings.ReplaceAll(page, "2026-12-04", time.Now().AddDate(0, 0, 10).Format(time.DateOnly)) // a Friday to come
	for i, block := range strings.Split(page, "```")[1:] {
		if i%2 == 1 {
			continue // between blocks
		}
		language, text, _ := strings.Cut(block, "\n")
		if language == "yaml" {
			for _, name := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		var shown []string
		var command string
		for _, line := range append(strings.Split(strings.TrimSpace(text), "\n"), "weir version") {
			next, isCommand := strings.CutPrefix(strings.TrimPrefix(line, "$ "), "weir ")
			if !isCommand {
				shown = append(shown, line)
				continue
			}
			if command != "" {
				guided(t, dir, command, shown)
				ran++
			}
			if command, shown = next, nil; !strings.HasPrefix(line, "$ ") {
				shown = []string{"…"}
			}
		}
	}
	return ran
}

// guided runs a command on a store in a folder, which has to succeed or to be refused as shown.
func guided(t *testing.T, dir, command string, shown []string) {
	t.Helper()
	command, _, _ = strings.Cut(command, " #")
	args := strings.Fields(command)
	for i, arg := range args {
		if slices.Contains(files, arg) {
			args[i] = filepath.Join(dir, arg)
		}
	}
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), append(args, "--store", "disk:"+filepath.Join(dir, "weir-data")), nil, &out, &errs)
	if want := strings.HasPrefix(strings.Join(shown, ""), "refused"); code != 0 && !(want && code == 3) {
		t.Fatalf("weir %s: exit code %d: %s", command, code, &errs)
	}
	skip, rest := false, strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, want := range shown {
		if want == "…" {
			skip = true
			continue
		}
		for skip && len(rest) > 0 && varying(rest[0]) != varying(want) {
			rest = rest[1:]
		}
		if len(rest) == 0 || varying(rest[0]) != varying(want) {
			t.Fatalf("weir %s prints\n%s\nwithout the line\n%s", command, &out, want)
		}
		skip, rest = false, rest[1:]
	}
	if !skip && len(rest) > 0 {
		t.Errorf("weir %s also prints\n%s", command, strings.Join(rest, "\n"))
	}
}
