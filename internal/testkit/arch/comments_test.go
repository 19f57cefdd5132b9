package arch_test

import (
	"go/ast"
	"slices"
	"testing"
)

// undocumented reports exported names without a comment: functions, types, their methods, interface methods, and
// constants and variables, for which a comment on their group is enough.
func undocumented(s source) []string {
	if !s.isPublic() || s.isGenerated() {
		return nil
	}
	var found []string
	missing := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c.Text() != "" }) {
			found = append(found, s.at(name, "%s has no comment", name.Name))
		}
	}
	for _, decl := range s.file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil || receiver(decl.Recv.List[0].Type).IsExported() {
				missing(decl.Name, decl.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if decl.Lparen.IsValid() {
						missing(spec.Name, spec.Doc)
					} else {
						missing(spec.Name, decl.Doc)
					}
					for _, method := range methods(spec) {
						missing(method.Names[0], method.Doc, method.Comment)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						missing(name, decl.Doc, spec.Doc, spec.Comment)
					}
				}
			}
		}
	}
	return found
}

// methods returns those that an exported interface declares itself.
func methods(spec *ast.TypeSpec) []*ast.Field {
	iface, ok := spec.Type.(*ast.InterfaceType)
	if !ok || !spec.Name.IsExported() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(iface.Methods.List), func(f *ast.Field) bool { return len(f.Names) == 0 })
}

// receiver returns the type name in T, *T, T[P] and T[P, Q].
func receiver(expr ast.Expr) *ast.Ident {
	switch x := expr.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x
	default:
		return &ast.Ident{}
	}
}

func TestMissingCommentsCaught(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, text string
		want             int
	}{
		{"func", "x.go", "func F() {}", 1},
		{"func, blank line", "x.go", "// F is.\n\nfunc F() {}", 1},
		{"func, directive", "x.go", "//go:noinline\nfunc F() {}", 1},
		{"func, commented", "x.go", "// F does.\nfunc F() {}", 0},
		{"func, unexported", "x.go", "func f() {}", 0},
		{"method", "x.go", "func (t *T) M() {}", 1},
		{"method, generic", "x.go", "func (t T[K, V]) M() {}", 1},
		{"method of unexported", "x.go", "func (t *t[K]) M() {}", 0},
		{"type", "x.go", "type T struct{}", 1},
		{"type in a group", "x.go", "// These are.\ntype (\n\tT int\n)", 1},
		{"type, commented", "x.go", "// T is.\ntype T struct{ A int }", 0},
		{"interface method", "x.go", "// T is.\ntype T interface {\n\tM()\n\terror\n}", 1},
		{"interface method, commented", "x.go", "// T is.\ntype T interface {\n\t// M does.\n\tM()\n\tN() // does\n}", 0},
		{"const", "x.go", "const A, b = 1, 2", 1},
		{"vars", "x.go", "var (\n\tA int\n\tB int // is\n\t// C is.\n\tC int\n)", 1},
		{"consts of a group", "x.go", "// These are.\nconst (\n\tA = 1\n\tB = 2\n)", 0},
		{"internal", "internal/x/x.go", "func F() {}", 0},
		{"test", "x_test.go", "func F() {}", 0},
		{"suite", "store/storetest/x.go", "func F() {}", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := undocumented(mustParse(t, tt.path, "package x\n\n"+tt.text+"\n")); len(got) != tt.want {
				t.Errorf("found %q, want %d", got, tt.want)
			}
		})
	}
}
