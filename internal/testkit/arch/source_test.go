package arch_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// source is a parsed Go file; its path is relative to the module, with slashes.
type source struct {
	path, text string
	lines      int
	fset       *token.FileSet
	file       *ast.File
}

func parse(name string, text []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return source{name, string(text), strings.Count(string(text), "\n"), fset, file}, err
}

func (s source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || strings.HasPrefix(s.path, "store/storetest/")
}

func (s source) isGenerated() bool {
	return strings.HasSuffix(s.path, ".pb.go") || strings.HasSuffix(s.path, "_templ.go") || ast.IsGenerated(s.file)
}

// isPublic reports whether users can import the file's package.
func (s source) isPublic() bool {
	return s.file.Name.Name != "main" && !strings.HasSuffix(s.path, "_test.go") &&
		!slices.Contains(strings.Split(s.path, "/"), "internal")
}

func (s source) at(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", s.path, s.lineOf(n.Pos())) + fmt.Sprintf(format, args...)
}

func (s source) lineOf(pos token.Pos) int { return s.fset.Position(pos).Line }

var excusedSleep = regexp.MustCompile(`^// (real|virtual) time: \S`)

// sleeps reports tests that wait in real time without a reason. A sleep inside a synctest bubble costs nothing, if the
// bubble is made in place or by a helper named bubble. Where neither is visible, the line has "// virtual time:".
func sleeps(s source) []string {
	if !s.isTest() {
		return nil
	}
	reasons := make(map[int]bool)
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			reasons[s.fset.Position(c.Pos()).Line] = excusedSleep.MatchString(c.Text)
		}
	}
	var found []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "bubble" && !callsSynctest(n) {
				found = append(found, s.at(n, "bubble calls no synctest.Test"))
			}
		case *ast.CallExpr:
			helper, ok := n.Fun.(*ast.Ident)
			return !isSelector(n.Fun, "synctest", "Test") && !(ok && helper.Name == "bubble")
		case *ast.SelectorExpr:
			if isSelector(n, "time", "Sleep") && !reasons[s.lineOf(n.Pos())] {
				found = append(found, s.at(n, "sleeps: use testing/synctest or a signal, or say why: // real time: …"))
			}
		}
		return true
	})
	return found
}

// defaultClients reports calls by net/http's default client, tests aside: it waits for ever, and follows redirects.
func defaultClients(s source) (found []string) {
	if strings.HasSuffix(s.path, "_test.go") {
		return nil
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		for _, name := range []string{"DefaultClient", "Get", "Head", "Post", "PostForm"} {
			if sel, ok := n.(*ast.SelectorExpr); ok && isSelector(sel, "http", name) {
				found = append(found, s.at(n, "http.%s has no timeout: make a client, with internal/api/secret if it has a token", name))
			}
		}
		return true
	})
	return found
}

func callsSynctest(fn *ast.FuncDecl) (calls bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		calls = calls || ok && isSelector(call.Fun, "synctest", "Test")
		return !calls
	})
	return calls
}

// isSelector reports whether an expression is pkg.name.
func isSelector(expr ast.Expr, pkg, name string) bool {
	sel, ok := expr.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// uncommented reports source directories, tests aside, in which no file has a package comment.
func uncommented(all []source) []string {
	has := make(map[string]bool)
	for _, s := range all {
		if dir := path.Dir(s.path); !strings.HasSuffix(s.path, "_test.go") {
			has[dir] = has[dir] || s.file.Doc.Text() != ""
		}
	}
	var found []string
	for dir, ok := range has {
		if !ok {
			found = append(found, dir+": no package comment")
		}
	}
	return found
}

// sources parses every Go file of the repository, including the nested modules.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := fs.WalkDir(os.DirFS(filepath.FromSlash(root)), ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		s, err := parse(name, text)
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no sources found")
	}
	return all
}

func TestSources(t *testing.T) {
	t.Parallel()
	all := sources(t)
	found := uncommented(all)
	for _, s := range all {
		found = slices.Concat(found, sleeps(s), defaultClients(s), undocumented(s))
	}
	for _, f := range found {
		t.Error(f)
	}
}

func TestSourceRulesCatch(t *testing.T) {
	t.Parallel()
	bubble := "package x\nfunc f() { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }\n"
	for _, tt := range []struct {
		name, path, text string
		check            func(source) []string
		want             int
	}{
		{"sleep", "x_test.go", "package x\nfunc f() { time.Sleep(1) }\n", sleeps, 1},
		{"sleep as a value", "x_test.go", "package x\nvar f = time.Sleep\n", sleeps, 1},
		{"sleep in the suite", "store/storetest/x.go", "package x\nfunc f() { time.Sleep(1) }\n", sleeps, 1},
		{"sleep without a reason", "x_test.go", "package x\nfunc f() {\n\ttime.Sleep(1) // real time:\n}\n", sleeps, 1},
		{"sleep with a reason above", "x_test.go", "package x\nfunc f() {\n\t// real time: no\n\ttime.Sleep(1)\n}\n", sleeps, 1},
		{"sleep with a reason", "x_test.go", "package x\nfunc f() {\n\ttime.Sleep(1) // real time: a child\n}\n", sleeps, 0},
		{"sleep in a bubble", "x_test.go", bubble, sleeps, 0},
		{"sleep in a helper's bubble", "x_test.go", "package x\nfunc f() { bubble(t, func() { time.Sleep(1) }) }\n", sleeps, 0},
		{"bubble of the name only", "x_test.go", "package x\nfunc bubble() { f() }\n", sleeps, 1},
		{"bubble", "x_test.go", "package x\nfunc bubble() { synctest.Test(t, f) }\n", sleeps, 0},
		{"default client", "x.go", "package x\nvar c = http.DefaultClient\nfunc f() { http.Get(u) }\n", defaultClients, 2},
		{"default client in a test", "x_test.go", "package x\nvar c = http.DefaultClient\n", defaultClients, 0},
		{"default transport", "x.go", "package x\nvar c = http.DefaultTransport\n", defaultClients, 0},
		{"sleep in production", "x.go", "package x\nfunc f() { time.Sleep(1) }\n", sleeps, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.check(mustParse(t, tt.path, tt.text)); len(got) != tt.want {
				t.Errorf("found %q, want %d", got, tt.want)
			}
		})
	}
}

func TestPackageCommentCaught(t *testing.T) {
	t.Parallel()
	with, without := "// Package x is.\npackage x\n", "package x\n"
	got := uncommented([]source{
		mustParse(t, "good/a.go", with), mustParse(t, "good/b.go", without),
		mustParse(t, "bad/a.go", without), mustParse(t, "bad/a_test.go", with),
		mustParse(t, "tests/a_test.go", without),
	})
	if !slices.Equal(got, []string{"bad: no package comment"}) {
		t.Errorf("found %q", got)
	}
}

func mustParse(t *testing.T, name, text string) source {
	t.Helper()
	s, err := parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
