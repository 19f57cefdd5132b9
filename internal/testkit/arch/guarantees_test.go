package arch_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	namedTest = regexp.MustCompile("`(Test[A-Z]\\w*)(?:/(\\w+))?`")
	testFile  = regexp.MustCompile(`\]\(([^)#\s]+_test\.go)\)`)
	suiteName = regexp.MustCompile(`Name: "(\w+)", Scenarios`)
)

// conformanceSuites returns the names of the suites of store/storetest.
func conformanceSuites(tree fs.FS) (names map[string]bool, err error) {
	names = make(map[string]bool)
	err = fs.WalkDir(tree, "store/storetest", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, m := range suiteName.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	return names, err
}

// unheld returns the rows of a page's tables that no test holds: those that name none, name one that no file declares that
// they link or that is linked outside of the tables, or link a file that declares none of them.
func unheld(tree fs.FS, page string, suites map[string]bool) (found []string, rows int) {
	text, err := fs.ReadFile(tree, page)
	if err != nil {
		return []string{err.Error()}, 0
	}
	lines, everywhere := strings.Split(string(text), "\n"), ""
	for _, line := range lines {
		if !strings.HasPrefix(line, "|") {
			everywhere += line + "\n"
		}
	}
	common := testFile.FindAllStringSubmatch(everywhere, -1)
	for i, line := range lines {
		if !strings.HasPrefix(line, "| ") || i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--") {
			continue // no row, or a header
		}
		rows++
		names, files := namedTest.FindAllStringSubmatch(line, -1), testFile.FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			found = append(found, "no test holds: "+line)
		}
		declares := make(map[string]bool) // the tests and files that belong together
		for _, file := range slices.Concat(common, files) {
			code, err := fs.ReadFile(tree, path.Join(path.Dir(page), file[1]))
			for _, name := range names {
				if err == nil && strings.Contains(string(code), "\nfunc "+name[1]+"(") {
					declares[file[1]], declares[name[0]] = true, true
				}
			}
		}
		for _, file := range files {
			if !declares[file[1]] {
				found = append(found, file[1]+" declares none of the tests of its row")
			}
		}
		for _, name := range names {
			if !declares[name[0]] || name[2] != "" && !suites[name[2]] {
				found = append(found, name[0]+" is in no file that its row links")
			}
		}
	}
	return found, rows
}

// TestLinksOfGuarantees checks that tests hold every row of docs/guarantees.md.
func TestLinksOfGuarantees(t *testing.T) {
	t.Parallel()
	tree := os.DirFS(filepath.FromSlash(root))
	suites, err := conformanceSuites(tree)
	if err != nil || len(suites) < 20 {
		t.Fatalf("%d suites: %v", len(suites), err)
	}
	found, rows := unheld(tree, "docs/guarantees.md", suites)
	for _, f := range found {
		t.Error(f)
	}
	if rows < 25 {
		t.Errorf("only %d rows", rows)
	}
}

func TestLinksOfGuaranteesCaught(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"a_test.go": {Data: []byte("package a\n\nfunc TestA(t *testing.T) {\n")},
		"c_test.go": {Data: []byte("package a\n\nfunc TestC(t *testing.T) {\n")},
		"docs/g.md": {Data: []byte("`TestC`: [c](../c_test.go)\n\n| | Held by |\n|---|---|\n| ok | [`TestA`](../a_test.go) |\n" +
			"| ok | `TestA/linear` ([a](../a_test.go)) |\n| no test | |\n| no file | `TestA` |\n" +
			"| another | [`TestB`](../a_test.go) |\n| no suite | [`TestA/none`](../a_test.go) |\n" +
			"| ok | `TestC/linear` |\n| no suite | `TestC/none` |\n| neither | [`TestC`](../a_test.go) |\n")},
	}
	found, rows := unheld(tree, "docs/g.md", map[string]bool{"linear": true})
	if rows != 9 || len(found) != 7 {
		t.Errorf("%d rows, found %q", rows, found)
	}
}
