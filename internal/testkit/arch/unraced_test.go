package arch_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var unracedRE = regexp.MustCompile(`(?m)^UNRACED \?= (\S+)$`)

// shortens reports the tests of a file that do less with the race detector than without.
func shortens(s source) (names []string) {
	for _, decl := range s.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && (id.Name == "unraced" || id.Name == "brief" || id.Name == "raced") {
				names = append(names, fn.Name.Name)
				return false
			}
			return true
		})
	}
	return names
}

// Tests of the DynamoDB store that are too slow for the race detector also run without it: make test lists them by name.
func TestUnracedAreRun(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := unracedRE.FindSubmatch(text)
	if found == nil {
		t.Fatal("the Makefile has no UNRACED")
	}
	run, err := regexp.Compile(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, s := range sources(t) {
		if path.Dir(s.path) != "store/dynamodb" {
			continue
		}
		for _, name := range shortens(s) {
			if n++; !run.MatchString(name) {
				t.Errorf("%s: %s is cut short with the race detector, and UNRACED of the Makefile does not name it", s.path, name)
			}
		}
	}
	if n == 0 {
		t.Error("no test was found that is cut short: the rule finds nothing")
	}
}
