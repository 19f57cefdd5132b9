package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/porttest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/internal/testkit/redistest"
)

// block is a fenced block of a page.
type block struct {
	line     int
	language string
	file     string // the name under which it is written to the page's folder
	excuse   string // why it is not run
	text     string
}

// indented is a command in a block that is indented, not fenced.
var indented = regexp.MustCompile(`\n\n {4}(\$ |weir [a-z]|curl |go |make |pip |npm |docker |k6 ).*\n`)

var fence = regexp.MustCompile("^( *)```(?:(\\S+)(?: (.+))?)?$")

// blocks returns the fenced blocks of a page.
func blocks(page string) (found []block) {
	var open *block
	indent := ""
	for i, line := range strings.Split(page, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil && open == nil:
			open, indent = &block{line: i + 1, language: m[2]}, m[1]
			if why, ok := strings.CutPrefix(m[3], "not run: "); ok {
				open.excuse = why
			} else {
				open.file = m[3]
			}
		case m != nil:
			found, open = append(found, *open), nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	return found
}

// command is a command of a page, or a block of them, and what it prints.
type command struct {
	line  int
	text  string
	shown []string // nil if any output will do
	serve bool
	stop  bool // the servers
}

// commands returns the commands of a block: each after "$ " with its output in a console, and the whole of a shell script,
// cut where servers start and stop.
func (b block) commands() (found []command) {
	add := func(i int, text string) {
		found = append(found, command{
			line: b.line + i + 1, text: text, serve: strings.HasPrefix(text, "weir serve"),
			stop: strings.HasPrefix(text, "kill %"),
		})
	}
	continued := false
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		text, prompted := strings.CutPrefix(line, "$ ")
		switch n := len(found) - 1; {
		case continued:
			found[n].text += "\n" + line
		case b.language == "console" && prompted:
			add(i, text)
		case b.language == "console" && n >= 0:
			found[n].shown = append(found[n].shown, line)
		case b.language == "sh" && (n < 0 || found[n].serve || found[n].stop || strings.HasPrefix(line, "weir serve") ||
			strings.HasPrefix(line, "kill %")):
			add(i, line)
		case b.language == "sh":
			found[n].text += "\n" + line
		}
		n := len(found) - 1 // a quoted text may have several lines
		continued = (continued || prompted || b.language == "sh") && n >= 0 &&
			(strings.HasSuffix(line, `\`) || strings.Count(found[n].text, "'")%2 == 1)
	}
	return found
}

// running reports whether a server runs in the background of a reader's shell after the block, given whether one did before.
func (b block) running(before bool) bool {
	for _, c := range b.commands() {
		if c.serve {
			before = before || strings.HasSuffix(aComment.ReplaceAllString(c.text, ""), "&")
		}
		before = before && !c.stop
	}
	return before
}

// isShell reports whether a block without a language has commands.
func (b block) isShell() bool {
	return b.language == "" && regexp.MustCompile(`(?m)^(\$ |weir [a-z]|curl |go install|make )`).MatchString(b.text) ||
		slices.Contains([]string{"bash", "shell"}, b.language)
}

// tree returns the pages whose commands are run: all but generated ones, and decisions, which were true once.
func tree(t *testing.T) (names []string) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, "docs", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "docs/adr" || name == "docs/reference"):
			return fs.SkipDir
		case filepath.Ext(name) == ".md" && name != "docs/benchmarks.md" && name != "docs/growth.md":
			names = append(names, name)
		}
		return nil
	})
	if err != nil || len(names) < 40 {
		t.Fatalf("%d pages: %v", len(names), err)
	}
	for _, pattern := range []string{"clients/*/README.md", "contrib/*/README.md"} {
		more, err := fs.Glob(root, pattern)
		if err != nil || len(more) < 2 {
			t.Fatalf("%s: %q: %v", pattern, more, err)
		}
		names = append(names, more...)
	}
	return append(names, "README.md", "CONTRIBUTING.md", "SECURITY.md")
}

// TestPages runs the commands of each page in order, as docs/contribute/testing.md describes.
func TestPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the scripts have what is concurrent")
	}
	for _, name := range tree(t) {
		page, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		var found []block
		running := false
		for _, b := range blocks(string(page)) {
			if b.isShell() {
				t.Errorf("%s:%d: begin it with ```console or ```sh, so that it is run", name, b.line)
			}
			running = b.running(running)
			if b.excuse == "" && (b.file != "" || b.language == "sh" || b.language == "console") {
				found = append(found, b)
			}
		}
		if m := indented.FindString(string(page)); m != "" {
			t.Errorf("%s: fence what is indented, so that it is run: %s", name, strings.TrimSpace(m))
		}
		if running {
			t.Errorf("%s leaves a server running: end with kill %%1", name)
		}
		if slices.ContainsFunc(found, func(b block) bool { return b.language == "sh" || b.language == "console" }) {
			t.Run(strings.TrimSuffix(strings.TrimPrefix(name, "docs/"), ".md"), func(t *testing.T) {
				t.Parallel()
				(&runner{dir: t.TempDir(), name: name, ports: make(map[string]string)}).run(t, found)
			})
		}
	}
}

// runner runs the commands of a page.
type runner struct {
	dir, name string
	ports     map[string]string // in place of those that the page names
}

var (
	anAddress = regexp.MustCompile(`(127\.0\.0\.1|localhost| ):(80\d\d|6379)\b`)
	aComment  = regexp.MustCompile(`\s+(#.*)?$`)
	aTable    = regexp.MustCompile(`dynamodb://([a-zA-Z][\w-]*)`)
)

// port returns the free port that stands for one of the page.
func (r *runner) port(t *testing.T, shown string) string {
	t.Helper()
	if r.ports[shown] == "" {
		port, err := porttest.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		if shown == "6379" {
			_, port, _ = strings.Cut(redistest.Start(t).Addr, ":")
		}
		r.ports[shown] = port
	}
	return r.ports[shown]
}

// here puts addresses of this run in place of those that the page shows.
func (r *runner) here(t *testing.T, text string) string {
	t.Helper()
	text = aTable.ReplaceAllString(text, "dynamodb://$1"+r.suffix())
	text = anAddress.ReplaceAllStringFunc(text, func(found string) string {
		host, shown, _ := strings.Cut(found, ":")
		return host + ":" + r.port(t, shown)
	})
	return strings.ReplaceAll(text, soon, time.Now().AddDate(0, 0, 10).Format(time.DateOnly))
}

// soon is a day to come, wherever a page shows it.
const soon = "2026-12-04"

// there is the reverse of here, for output.
func (r *runner) there(text string) string {
	for shown, port := range r.ports {
		text = strings.ReplaceAll(text, ":"+port, ":"+shown)
	}
	return aTable.ReplaceAllStringFunc(text, func(found string) string { return strings.TrimSuffix(found, r.suffix()) })
}

// suffix makes the names of a page's tables its own: all pages share one engine.
func (r *runner) suffix() string {
	return "-" + strings.NewReplacer("/", "-", ".md", "").Replace(r.name)
}

const (
	before = "\x1e" // begins what the nth command prints
	after  = "\x1f" // ends it, with the exit code
)

// script returns the shell script of a page, which prints what each command prints between marks.
func (r *runner) script(t *testing.T, found []block) (script string, all []command) {
	t.Helper()
	var b strings.Builder
	b.WriteString("servers=; trap 'kill $servers 2>/dev/null; wait' EXIT\n")
	for _, block := range found {
		if block.file != "" {
			r.write(t, block)
			continue
		}
		stopped := false
		for _, c := range block.commands() {
			text := r.here(t, c.text)
			if c.serve && !stopped || c.stop {
				b.WriteString("[ -z \"$servers\" ] || kill $servers 2>/dev/null; wait $servers 2>/dev/null; servers=\n")
				stopped = c.serve
			}
			switch {
			case c.stop:
				text = ":"
			case c.serve:
				text = serving(strings.TrimSuffix(aComment.ReplaceAllString(text, ""), "&"), r.served(t, text), len(all))
			case block.language == "sh":
				text = "set -e\n" + text + "\nset +e"
			}
			fmt.Fprintf(&b, "printf '\\036'\n{ %s\n} 2>&1 </dev/null\nprintf '\\037%%d\\036\\n' $?\n", text)
			all = append(all, c)
		}
	}
	return b.String(), all
}

// write writes a file of the page. Blocks of the same name replace one another, so a page has a name once.
func (r *runner) write(t *testing.T, b block) {
	t.Helper()
	name := filepath.Join(r.dir, b.file)
	if _, err := os.Stat(name); err == nil || !filepath.IsLocal(b.file) {
		t.Fatalf("%s:%d: %s is written twice, or elsewhere", r.name, b.line, b.file)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(r.here(t, b.text)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// served returns the port of a server's HTTP API.
func (r *runner) served(t *testing.T, text string) string {
	t.Helper()
	if m := regexp.MustCompile(`--http[= ]\S*:(\d+)`).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return r.port(t, "8080")
}

// serving starts a server, waits until it answers, and prints what it printed so far.
func serving(text, port string, n int) string {
	return fmt.Sprintf(`%s >serve-%d.log 2>&1 &
server=$!; servers="$servers $server"
until curl -sk -o /dev/null "127.0.0.1:%s"; do kill -0 $server || { cat serve-%[2]d.log; exit 1; }; sleep 0.05; done
cat serve-%[2]d.log`, text, n, port)
}

// run runs the blocks of a page.
func (r *runner) run(t *testing.T, found []block) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil && os.Getenv("CI") == "" {
		t.Skip("the pages use curl")
	}
	script, all := r.script(t, found)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "GORACE=atexit_sleep_ms=0", "NO_COLOR=1", "NO_PROXY=127.0.0.1",
		"WEIR_SERVE_HTTP=127.0.0.1:"+r.port(t, "8080"), "WEIR_SERVE_GRPC=127.0.0.1:"+r.port(t, "8081"),
		"WEIR_SERVE_DECIDE_WITHIN=1s")
	if aTable.MatchString(script) {
		cmd.Env = append(cmd.Env, "AWS_ENDPOINT_URL_DYNAMODB="+dynamotest.Engine(t), "AWS_REGION=us-east-1",
			"AWS_ACCESS_KEY_ID=page", "AWS_SECRET_ACCESS_KEY=page")
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	printed := strings.Split(string(out), before)
	for i, c := range all {
		text, code := "", "none"
		if 2*i+1 < len(printed) {
			text, code, _ = strings.Cut(printed[2*i+1], after)
		}
		text = r.there(text)
		literal := slices.ContainsFunc(c.shown, func(line string) bool { return line != "…" })
		if code != "0" && (!literal || code == "none") { // what fails is shown to fail
			t.Fatalf("%s:%d: exit code %s (%v)\n%s\n%s", r.name, c.line, code, err, c.text, text)
		}
		if why := differs(c.shown, text); why != "" {
			t.Errorf("%s:%d: %s\n%s\nprints\n%s", r.name, c.line, why, c.text, text)
		}
	}
}

// differs compares what a page shows with what a command printed. A line with … alone stands for any number of lines, and
// … in a line for any text; nothing shown, for any output.
func differs(shown []string, printed string) string {
	skip, rest := len(shown) == 0, strings.Split(strings.TrimSpace(printed), "\n")
	for _, want := range shown {
		if want == "…" {
			skip = true
			continue
		}
		for skip && len(rest) > 0 && !alike(want, rest[0]) {
			rest = rest[1:]
		}
		if len(rest) == 0 || !alike(want, rest[0]) {
			return "missing: " + want
		}
		skip, rest = false, rest[1:]
	}
	if !skip && strings.TrimSpace(strings.Join(rest, "")) != "" {
		return "not shown: " + strings.Join(rest, "\n")
	}
	return ""
}

// alike compares two lines but for what varies.
func alike(want, got string) bool {
	parts := strings.Split(varying(want), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(varying(got))
}

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

// TestPrograms compiles the Go programs of all pages, and runs that of the README.
func TestPrograms(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := make(map[string]string)
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", dir + "/"}
	readme := ""
	for _, name := range tree(t) {
		page, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(string(page)) {
			if b.language != "go" || b.excuse != "" || !strings.HasPrefix(b.text, "package ") {
				continue
			}
			n := len(overlay)
			if name == "README.md" {
				readme = filepath.Join(dir, fmt.Sprintf("program%d", n))
			}
			file := filepath.Join(dir, fmt.Sprintf("program%d.go", n))
			text := fmt.Sprintf("//line %s:%d\n%s", filepath.Join(root, name), b.line+1, b.text)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay[filepath.Join(root, fmt.Sprintf("program%d/program.go", n))] = file
			args = append(args, fmt.Sprintf("./program%d", n))
		}
	}
	if len(overlay) == 0 {
		t.Fatal("no page has a program")
	}
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, bytes.TrimSpace(out))
	}
	out, err := exec.CommandContext(t.Context(), readme).CombinedOutput()
	if err != nil || !regexp.MustCompile(`^\S+ \S+ spent 730\n$`).Match(out) {
		t.Errorf("the program of the README: %v, %q", err, out)
	}
}
