package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/term"
)

func newApp(in io.Reader) (a *app, errs *bytes.Buffer) {
	errs = new(bytes.Buffer)
	return &app{in: in, out: term.New(io.Discard, nil), err: term.New(errs, nil), output: "json"}, errs
}

func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, f)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	a, _ := newApp(nil)
	owner := make(map[string]string)
	walk(a.root(), func(cmd *cobra.Command) {
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
			name := variable(commandPath(cmd), f.Name)
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
	a, _ := newApp(nil)
	var text strings.Builder
	walk(a.root(), func(cmd *cobra.Command) { text.WriteString(cmd.Example + "\n") })
	guides, err := filepath.Glob("../../docs/guide/*.md")
	if err != nil || len(guides) < 20 {
		t.Fatalf("%d guides, error %v", len(guides), err)
	}
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
		if command, ok := strings.CutPrefix(strings.TrimPrefix(line, ".bin/"), "weir "); ok && !strings.ContainsAny(command, "[$") {
			command, _, _ = strings.Cut(command, " #")
			command, _, _ = strings.Cut(command, " && ")
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
	lines := documented(t)
	if len(lines) < 20 {
		t.Fatalf("only %d commands are documented", len(lines))
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "limits rates") || strings.HasPrefix(line, "COMMAND") {
			continue
		}
		a, _ := newApp(nil)
		cmd, rest, err := a.root().Find(strings.Fields(line))
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

func TestCodes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("x"), failed},
		{weir.ErrExists, failed},
		{weir.ErrConflict, failed},
		{context.Canceled, failed},
		{usageError{errors.New("x")}, wrongUsage},
		{&weir.ConfigError{Field: "f", Reason: "r"}, wrongUsage},
		{weir.ErrBadCursor, wrongUsage},
		{&weir.BurstError{}, wrongUsage},
		{&weir.ExceededError{}, refused},
		{quietError{weir.ErrExceeded}, refused},
		{codeError{weir.ErrUnavailable, failed}, failed},
		{partly(&manifest.FailedError{}), failed},
		{weir.ErrNotFound, notFound},
		{&weir.NoLimitsError{}, notFound},
		{&fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}, notFound},
		{weir.ErrUnavailable, unavailable},
		{&weir.StoreError{Op: "open", Err: fs.ErrNotExist}, unavailable},
	} {
		if got := codeOf(fmt.Errorf("wrapped: %w", tt.err)); got != tt.want {
			t.Errorf("%T %v: code %d, want %d", tt.err, tt.err, got, tt.want)
		}
	}
}

func TestReportIsOneLine(t *testing.T) {
	t.Parallel()
	a, errs := newApp(nil)
	a.report(t.Context(), errors.Join(errors.New("one\x1b[2J"), errors.New("two")))
	if got, want := errs.String(), "weir: one\\x1b[2J; two\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]error{"y\n": nil, "YES\n": nil, " y": nil, "n\n": errCancelled, "\n": errCancelled, "": errCancelled, "yes please\n": errCancelled} {
		a, errs := newApp(strings.NewReader(answer))
		if err := a.ask(t.Context(), "delete it"); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", answer, err, want)
		}
		if errs.String() != "Delete it? [y/N] " {
			t.Errorf("asks %q", errs)
		}
	}
	in, out := io.Pipe() // no input ever arrives
	defer out.Close()
	a, _ := newApp(in)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.ask(ctx, "delete it"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1:                              "0s",
		0:                               "0s",
		1:                               "1ms",
		20*time.Millisecond + 1:         "21ms",
		5981 * time.Millisecond:         "6s",
		12340 * time.Millisecond:        "12.4s",
		60 * time.Second:                "1m",
		61*time.Second + 1:              "1m2s",
		2 * time.Hour:                   "2h",
		25*time.Hour + time.Millisecond: "25h0m1s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%d) = %s, want %s", d, got, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0", 1: "0.001", 1500 * time.Millisecond: "1.5", time.Hour + 1: "3600.001"} {
		if got, err := json.Marshal(seconds(d)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", d, got, err, want)
		}
	}
}

func TestYAML(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(struct {
		Text  []string          `json:"text"`
		Empty []int             `json:"empty"`
		Map   map[string]string `json:"map"`
		None  *int              `json:"none"`
		Big   int64             `json:"big"`
		Part  float64           `json:"part"`
	}{
		Text: []string{"plain", "true", "17", "null", "2026-03-02", "a: b", "#x", "two\nlines", "日本", ""},
		Map:  map[string]string{"yes": "no"}, Empty: []int{}, Big: 1_000_000_000_000_000, Part: 0.25,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := toYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	const want = `text:
  - plain
  - "true"
  - "17"
  - "null"
  - "2026-03-02"
  - 'a: b'
  - '#x'
  - |-
    two
    lines
  - 日本
  - ""
empty: []
map:
  "yes": "no"
none: null
big: 1000000000000000
part: 0.25
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}

// An interrupt ends a replay of standard input that receives no data.
func TestInterruptible(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := &interruptible{ended: ctx.Done(), src: in}
	go out.Write([]byte("abc"))
	buf := make([]byte, 8)
	if n, err := r.Read(buf); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	cancel()
	if _, err := r.Read(buf); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
