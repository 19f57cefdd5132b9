package arch_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

var (
	aPath     = regexp.MustCompile("`((?:[\\w.-]+/)*[\\w.-]+/?)`")
	aFunction = regexp.MustCompile("`(\\w+)`(?: \\| | \\()`([\\w/]+\\.go)`")
	inPicture = regexp.MustCompile(`class="code">([^<]+)<`)
)

// lost returns what a page names and the tree does not have: paths of folders and files, Go files by their name alone, and
// functions, such as `Take` (`memory.go`), that the file beside them does not declare.
func lost(tree fs.FS, text string, goFiles map[string]bool) (found []string) {
	has := func(name string) bool {
		_, err := fs.Stat(tree, name)
		return err == nil
	}
	for _, m := range aPath.FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(m[1], "/")
		top, _, deep := strings.Cut(name, "/")
		switch {
		case path.Ext(name) == ".go" && !deep:
			if !goFiles[name] {
				found = append(found, m[1])
			}
		case top == ".bin": // built
		case deep && has(top) && !strings.Contains(name, "NAME") && !has(name):
			found = append(found, m[1])
		}
	}
	for _, m := range aFunction.FindAllStringSubmatch(text, -1) {
		code, err := fs.ReadFile(tree, m[2])
		if err == nil && !regexp.MustCompile(`(?m)^(?:type |func (?:\([^)]*\) )?)`+m[1]+`\b`).Match(code) {
			found = append(found, m[1]+" in "+m[2])
		}
	}
	return found
}

// depicted returns the paths in a picture, which are in the class code: "a/b.go", or "a: b.go · c.go" for files of a folder.
func depicted(picture string) (names []string) {
	for _, m := range inPicture.FindAllStringSubmatch(picture, -1) {
		folder, files, several := strings.Cut(m[1], ": ")
		if !several {
			folder, files = "", m[1]
		}
		for name := range strings.SplitSeq(files, " · ") {
			names = append(names, path.Join(folder, name))
		}
	}
	return names
}

// TestPathsOfPages checks that the files that pages and pictures name are there.
func TestPathsOfPages(t *testing.T) {
	t.Parallel()
	tree, goFiles := os.DirFS(filepath.FromSlash(root)), make(map[string]bool)
	for _, f := range sources(t) {
		goFiles[path.Base(f.path)] = true
	}
	check := func(name, text string) {
		for _, l := range lost(tree, fenced.ReplaceAllString(text, ""), goFiles) {
			t.Errorf("%s: there is no %s", name, l)
		}
	}
	if err := eachPage(tree, check); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"CONTRIBUTING.md", "SECURITY.md", "docs/adr/README.md"} {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		check(name, string(text))
	}
	picture, err := fs.ReadFile(tree, "docs/img/road.svg")
	names := depicted(string(picture))
	if err != nil || len(names) < 12 {
		t.Fatalf("%q: %v", names, err)
	}
	for _, name := range names {
		if _, err := fs.Stat(tree, name); err != nil {
			t.Errorf("the road of one Acquire: there is no %s", name)
		}
	}
}

func TestPathsOfPagesCaught(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{"a/b.go": {Data: []byte("package a\n\nfunc (x *X) Take() {}\n")}, "c.go": {Data: []byte("func f() {}\n")}}
	text := "`a/b.go` `a/` `b.go` `x/y` `text/plain` `f` (`c.go`) | `Take` | `a/b.go` | `a/NAME.go` `a` (`b.go`)\n" +
		"`a/c.go` `a/b/` `d.go` `g` (`c.go`) | `take` | `a/b.go` |\n"
	if found := lost(tree, text, map[string]bool{"b.go": true, "c.go": true}); len(found) != 5 {
		t.Errorf("found %q", found)
	}
	if got := depicted(`<text class="code">x/y.go</text><text class="code">a: b.go · c.go</text>`); strings.Join(got, " ") != "x/y.go a/b.go a/c.go" {
		t.Errorf("depicted %q", got)
	}
}
