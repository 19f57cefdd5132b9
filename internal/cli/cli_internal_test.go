package cli

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/testkit/raced"
)

func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, f)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	a := kit.New(nil, io.Discard, io.Discard, nil)
	owner := make(map[string]string)
	walk(root(a), func(cmd *cobra.Command) {
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short description is %q", cmd.CommandPath(), cmd.Short)
		}
		if cmd.Args == nil && cmd.Name() != "list" {
			t.Errorf("%s takes any arguments", cmd.CommandPath())
		}
		flags := cmd.LocalNonPersistentFlags()
		if !cmd.HasParent() {
			flags = cmd.PersistentFlags()
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s is not described", cmd.CommandPath(), f.Name)
			}
			name := kit.Variable(kit.CommandPath(cmd), f.Name)
			if other, taken := owner[name]; taken {
				t.Errorf("%s is the variable of %s and of %s --%s", name, other, cmd.CommandPath(), f.Name)
			}
			owner[name] = cmd.CommandPath() + " --" + f.Name
		})
	})
}

// documented returns the commands that guides and help show: lines that begin with weir.
func documented(t *testing.T) (lines []string) {
	t.Helper()
	a := kit.New(nil, io.Discard, io.Discard, nil)
	var text strings.Builder
	walk(root(a), func(cmd *cobra.Command) { text.WriteString(cmd.Example + "\n") })
	guides, err := filepath.Glob("../../docs/*/*.md")
	if err != nil || len(guides) < 20 {
		t.Fatalf("%d guides, error %v", len(guides), err)
	}
	guides = slices.DeleteFunc(guides, func(name string) bool { return strings.Contains(name, "/reference/") }) // help
	for _, name := range append(guides, "../../README.md", "../../scripts/demo.sh") {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "```") {
				fenced = !fenced
			} else if fenced || strings.HasPrefix(line, "    ") || strings.HasSuffix(name, ".sh") {
				text.WriteString(line) // a line of code
			}
		}
	}
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
		if command, ok := strings.CutPrefix(strings.TrimPrefix(line, "$bin/"), "weir "); ok && !strings.ContainsAny(command, "[$") {
			command, _, _ = strings.Cut(command, " #")
			command, _, _ = strings.Cut(command, " && ")
			command, _, _ = strings.Cut(command, " >")
			command, _, _ = strings.Cut(command, " || ")
			command, _, _ = strings.Cut(command, " > ")
			command, _, _ = strings.Cut(command, " | ")
			command, _, _ = strings.Cut(command, "   ") // the description after it
			command = strings.TrimSuffix(strings.TrimSuffix(command, " \\"), " &")
			lines = append(lines, command)
		}
	}
	return lines
}

// Every documented command is valid.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	lines := documented(t)
	if len(lines) < 20 {
		t.Fatalf("only %d commands are documented", len(lines))
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "limits rates") || strings.HasPrefix(line, "COMMAND") {
			continue
		}
		a := kit.New(nil, io.Discard, io.Discard, nil)
		top := root(a)
		top.InitDefaultCompletionCmd()
		cmd, rest, err := top.Find(strings.Fields(line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil || !cmd.Runnable() {
			t.Errorf("weir %s: %v", line, err)
		}
	}
}
