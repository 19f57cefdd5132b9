package arch_test

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// bound is a limit on a size that a newcomer has to keep in mind.
type bound struct {
	what string // as in excused
	most int
	of   func([]source) map[string]int // the sizes, by what has them
}

var bounds = []bound{
	{"lines of a file", 500, linesOfFiles},
	{"lines of a package", 3000, linesOfPackages},
	{"files of a package", 20, filesOfPackages},
	{"lines of a function", 60, linesOfFunctions},
	{"fields of a struct", 15, fieldsOfStructs},
	{"columns of a line", 120, columnsOfLines},
	{"files with methods of one type", 4, filesOfMethods},
	{"files of the root", 22, rootFiles},
	{"exported types of the root", 40, rootTypes},
	{"exported methods of Limiter", 15, limiterMethods},
	{"rooms of internal", 15, rooms},
}

// measured drops what the bounds do not cover: tests and generated code.
func measured(all []source) []source {
	return slices.DeleteFunc(slices.Clone(all), func(s source) bool {
		return strings.HasSuffix(s.path, "_test.go") || s.isGenerated()
	})
}

// check returns what exceeds the bound, unless it is excused, and what is excused without need.
func (b bound) check(all []source, excused map[string]string) []string {
	var found []string
	sizes := b.of(measured(all))
	for where, n := range sizes {
		if key := b.what + ": " + where; n > b.most && excused[key] == "" {
			found = append(found, fmt.Sprintf("%s is %d, at most %d is allowed", key, n, b.most))
		}
	}
	for key := range excused {
		if where, ok := strings.CutPrefix(key, b.what+": "); ok && sizes[where] <= b.most {
			found = append(found, fmt.Sprintf("%s is %d: strike it from excused", key, sizes[where]))
		}
	}
	slices.Sort(found)
	return found
}

func linesOfFiles(all []source) map[string]int {
	sizes := make(map[string]int)
	for _, s := range all {
		sizes[s.path] = s.lines
	}
	return sizes
}

func linesOfPackages(all []source) map[string]int {
	sizes := make(map[string]int)
	for _, s := range all {
		sizes[path.Dir(s.path)] += s.lines
	}
	return sizes
}

func filesOfPackages(all []source) map[string]int {
	sizes := make(map[string]int)
	for _, s := range all {
		if path.Dir(s.path) != "." { // has a bound of its own
			sizes[path.Dir(s.path)]++
		}
	}
	return sizes
}

func linesOfFunctions(all []source) map[string]int {
	sizes := make(map[string]int)
	for _, s := range all {
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				name := fn.Name.Name
				if fn.Recv != nil {
					name = receiver(fn.Recv.List[0].Type).Name + "." + name
				}
				sizes[s.path+" "+name] = s.lineOf(fn.End()) - s.lineOf(fn.Pos()) + 1
			}
		}
	}
	return sizes
}

func fieldsOfStructs(all []source) map[string]int {
	sizes := make(map[string]int)
	for _, s := range all {
		for _, decl := range s.file.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range types.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if body, ok := named.Type.(*ast.StructType); ok {
					for _, field := range body.Fields.List {
						sizes[s.path+" "+named.Name.Name] += max(1, len(field.Names))
					}
				}
			}
		}
	}
	return sizes
}

func columnsOfLines(all []source) map[string]int {
	sizes := make(map[string]int)
	for _, s := range all {
		for line := range strings.Lines(s.text) {
			columns := len([]rune(strings.TrimRight(line, "\n"))) + 3*strings.Count(line, "\t")
			sizes[s.path] = max(sizes[s.path], columns)
		}
	}
	return sizes
}

func filesOfMethods(all []source) map[string]int {
	files := make(map[string]map[string]bool)
	for _, s := range all {
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				name := path.Dir(s.path) + " " + receiver(fn.Recv.List[0].Type).Name
				if files[name] == nil {
					files[name] = make(map[string]bool)
				}
				files[name][s.path] = true
			}
		}
	}
	sizes := make(map[string]int)
	for name, paths := range files {
		sizes[name] = len(paths)
	}
	return sizes
}

func rootFiles(all []source) map[string]int {
	return count(all, func(s source) int { return 1 })
}

func rootTypes(all []source) map[string]int {
	return count(all, func(s source) (n int) {
		for _, decl := range s.file.Decls {
			if types, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range types.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok && named.Name.IsExported() {
						n++
					}
				}
			}
		}
		return n
	})
}

func limiterMethods(all []source) map[string]int {
	return count(all, func(s source) (n int) {
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if ok && fn.Recv != nil && fn.Name.IsExported() && receiver(fn.Recv.List[0].Type).Name == "Limiter" {
				n++
			}
		}
		return n
	})
}

// count adds up what the files of the root package have.
func count(all []source, of func(source) int) map[string]int {
	sizes := map[string]int{".": 0}
	for _, s := range all {
		if path.Dir(s.path) == "." {
			sizes["."] += of(s)
		}
	}
	return sizes
}

func rooms(all []source) map[string]int {
	names := make(map[string]bool)
	for _, s := range all {
		if parts := strings.Split(s.path, "/"); parts[0] == "internal" {
			names[parts[1]] = true
		}
	}
	return map[string]int{"internal": len(names)}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, b := range bounds {
		for _, found := range b.check(all, excused) {
			t.Error(found)
		}
	}
	for key := range excused {
		if !slices.ContainsFunc(bounds, func(b bound) bool { return strings.HasPrefix(key, b.what+": ") }) {
			t.Errorf("excused[%q] names no bound", key)
		}
	}
}

// Each bound reports a source that exceeds it by one, and accepts one that just keeps it.
func TestSizesCaught(t *testing.T) {
	t.Parallel()
	repeat := func(n int, format string) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, format, i)
		}
		return text.String()
	}
	file := func(name, text string) source { return mustParse(t, name, "package x\n\n"+text) }
	files := func(n int, dir, format string) (all []source) {
		for i := range n {
			all = append(all, file(fmt.Sprintf("%sf%d.go", dir, i), strings.ReplaceAll(format, "%d", fmt.Sprint(i))))
		}
		return all
	}
	for _, tt := range []struct {
		what   string
		exceed func(n int) []source // sources of size n
	}{
		{"lines of a file", func(n int) []source { return []source{file("x.go", repeat(n-2, "// line %d\n"))} }},
		{"lines of a package", func(n int) []source {
			return []source{file("x/a.go", repeat(n-5, "// line %d\n")), file("x/b.go", "\n")}
		}},
		{"files of a package", func(n int) []source { return files(n, "x/", "") }},
		{"lines of a function", func(n int) []source {
			return []source{file("x.go", "func (t *T[A]) f() {\n"+repeat(n-2, "\tcall(%d)\n")+"}\n")}
		}},
		{"fields of a struct", func(n int) []source {
			return []source{file("x.go", "type T struct {\n\tE\n"+repeat(n-1, "\tf%d int\n")+"}\n")}
		}},
		{"columns of a line", func(n int) []source {
			return []source{file("x.go", "func f() {\n\t// "+strings.Repeat("ü", n-7)+"\n}\n")}
		}},
		{"files with methods of one type", func(n int) []source { return files(n, "x/", "func (t *T) f%d() {}\n") }},
		{"files of the root", func(n int) []source { return files(n, "", "") }},
		{"exported types of the root", func(n int) []source { return []source{file("x.go", repeat(n, "type T%d int\n"))} }},
		{"exported methods of Limiter", func(n int) []source {
			return []source{file("x.go", repeat(n, "func (l *Limiter) F%d() {}\n"))}
		}},
		{"rooms of internal", func(n int) (all []source) {
			for i := range n {
				all = append(all, file(fmt.Sprintf("internal/r%d/x.go", i), ""))
			}
			return all
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(bounds, func(b bound) bool { return b.what == tt.what })
			if i < 0 {
				t.Fatal("no such bound")
			}
			b := bounds[i]
			if found := b.check(tt.exceed(b.most), nil); len(found) != 0 {
				t.Errorf("kept: %q", found)
			}
			found := b.check(tt.exceed(b.most+1), nil)
			if len(found) != 1 {
				t.Fatalf("exceeded: %q", found)
			}
			key, _, _ := strings.Cut(found[0], " is ")
			if found := b.check(tt.exceed(b.most+1), map[string]string{key: "why"}); len(found) != 0 {
				t.Errorf("excused: %q", found)
			}
			if found := b.check(tt.exceed(b.most), map[string]string{key: "why"}); len(found) != 1 {
				t.Errorf("excused without need: %q", found)
			}
		})
	}
	if len(bounds) != 11 {
		t.Errorf("%d bounds, 11 are tested", len(bounds))
	}
}
