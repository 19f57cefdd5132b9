package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tree under testdata has one mutant for each outcome.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/tree")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/e2e/node_modules/engine", 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", dir).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}

	var out strings.Builder
	err := run(t.Context(), &out, dir, dir+"/mutants", 2, part{1, 1}, nil)
	if err == nil || err.Error() != "6 of 7 mutants were not killed" {
		t.Errorf("run: %v", err)
	}
	for _, want := range []string{
		`ok    killed +TestFits, `,
		`FAIL  panics .*\n.*\n\tfailed before any test ran\n\tpanic: early`,
		`FAIL  stale .*\n.*\n\tgit apply: .* weir.go: patch does not apply`,
		`FAIL  survives +what is spent is given\n\tgo test \. -run 'TestFits'\n\tsurvived\n`,
		`FAIL  unbuilt .*\n.*\n\tdoes not compile\n(.*\n)*.*undefined: right`,
		`FAIL  unsound .*\n.*\n\tfails without the mutant\n`,
		`FAIL  untested .*\n.*\n\tnames no test\n`,
		`\nmutate: 1 passed, 6 failed\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(strings.ReplaceAll(out.String(), "\nerror:", "")) {
			t.Errorf("no match for %s", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}

	if text, err := os.ReadFile(dir + "/weir.go"); err != nil || !strings.Contains(string(text), "a <= left") {
		t.Errorf("the tree itself was mutated: %s, %v", text, err)
	}
	if err := run(t.Context(), &out, dir, dir+"/mutants", 1, part{1, 1}, []string{"kill"}); err != nil {
		t.Errorf("run kill: %v", err)
	}
	if err := run(t.Context(), &out, dir, dir+"/mutants", 1, part{1, 1}, []string{"nothing"}); err == nil {
		t.Error("a run of no mutants is not a success")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const diff = "--- a/x.go\n+++ b/x.go\n@@ -1 +1 @@\n-# test: a\n+# test: b\n"
	for _, tt := range []struct {
		name, patch string
		args        []string // nil: refused
	}{
		{"both", "# test: ./x -run 'A|B'\n# breaks: y\n" + diff, []string{"./x", "-run", "A|B"}},
		{"git's own header", "# breaks: y\n# test: .\n\ndiff --git a/x.go b/x.go\n" + diff, []string{"."}},
		{"none", diff, nil},
		{"no test", "# breaks: y\n" + diff, nil},
		{"empty test", "# test:\n# breaks: y\n" + diff, nil},
		{"no breaks", "# test: .\n" + diff, nil},
		{"after the diff", diff + "# test: .\n# breaks: y\n", nil},
		{"twice", "# test: .\n# test: .\n# breaks: y\n" + diff, nil},
		{"unknown", "# test: .\n# braeks: y\n" + diff, nil},
		{"unclosed", "# test: . -run 'A\n# breaks: y\n" + diff, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, err := parse([]byte(tt.patch))
			if (err != nil) != (tt.args == nil) || err == nil && !slices.Equal(m.args, tt.args) {
				t.Errorf("parse = %q, %v", m.args, err)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                   nil,
		"  a  b ":            {"a", "b"},
		`-run 'A B' "C'D"`:   {"-run", "A B", "C'D"},
		`-run='A|B'/c ''  .`: {"-run=A|B/c", "", "."},
	} {
		if got, err := split(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("split(%s) = %q, %v", text, got, err)
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	const begun, failed = `{"Action":"run","Test":"A"}`, `{"Action":"fail","Package":"p"}`
	for _, tt := range []struct {
		name, events string
		passed       bool
		killed       string // why not; "" if killed
		by           string
	}{
		{"test fails", begun + `{"Action":"fail","Test":"A/b"}{"Action":"fail","Test":"A"}` + failed, false, "", "A/b"},
		{"crash", begun + failed, false, "", crash},
		{"passes", begun + `{"Action":"pass"}`, true, "survived", crash},
		{"build fails", `{"Action":"build-output","Output":"x"}{"Action":"build-fail"}{"Action":"fail","FailedBuild":"p"}`, false, "does not compile", crash},
		{"another package's build fails", begun + failed + `{"Action":"fail","FailedBuild":"q"}`, false, "does not compile", crash},
		{"no test begun", failed, false, "failed before any test ran", crash},
		{"no event", "", false, "failed before any test ran", crash},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			v, err := judge(strings.NewReader(tt.events))
			if err != nil {
				t.Fatal(err)
			}
			v.passed = tt.passed
			why := ""
			if err := v.killed(); err != nil {
				why, _, _ = strings.Cut(err.Error(), "\n")
			}
			if why != tt.killed || v.by != tt.by {
				t.Errorf("killed: %q by %q, want %q by %q", why, v.by, tt.killed, tt.by)
			}
		})
	}
	if _, err := judge(strings.NewReader("no test2json")); err == nil {
		t.Error("text that is not JSON is not a verdict")
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	all := []mutant{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}, {name: "e"}}
	seen := make(map[string]int)
	for k := 1; k <= 3; k++ {
		for _, m := range (part{k, 3}).of(all) {
			seen[m.name]++
		}
	}
	for _, m := range all {
		if seen[m.name] != 1 {
			t.Errorf("%s is in %d of three parts", m.name, seen[m.name])
		}
	}
	var p part
	for _, bad := range []string{"", "2", "0/2", "3/2", "a/b"} {
		if p.parse(bad) == nil {
			t.Errorf("%q is taken for a part", bad)
		}
	}
	if err := p.parse("2/3"); err != nil || p != (part{2, 3}) {
		t.Errorf("2/3 is %v, error %v", p, err)
	}
}
