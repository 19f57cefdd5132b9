package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/weirlimits/weir"
	// root is the module's directory, relative to this package.
	root = "../../.."
	// shipped are the build tags of the binaries.
	shipped = "grpcnotrace,lambda.norpc"
)

// graph maps a package to its imports outside of tests. The module's own packages are named by directory, the root by
// "."; standard library packages have no imports here.
type graph map[string][]string

func (g graph) std(pkg string) bool { return g[pkg] == nil }

// own returns the module's packages that match a pattern, sorted.
func (g graph) own(pattern string) []string {
	var pkgs []string
	for pkg := range g {
		if first, _, _ := strings.Cut(pkg, "/"); !g.std(pkg) && (pkg == "." || !strings.Contains(first, ".")) && matches(pattern, pkg) {
			pkgs = append(pkgs, pkg)
		}
	}
	slices.Sort(pkgs)
	return pkgs
}

// linked returns, for each package that pkg links, the shortest import path to it.
func (g graph) linked(pkg string) map[string]string {
	road := map[string]string{pkg: pkg}
	for queue := []string{pkg}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		for _, to := range g[from] {
			if _, seen := road[to]; !seen {
				road[to] = road[from] + " → " + to
				queue = append(queue, to)
			}
		}
	}
	delete(road, pkg)
	return road
}

// check returns the violations of a rule.
func (g graph) check(r rule) []string {
	var broken []string
	for _, pkg := range g.own(r.room) {
		if matchesAny(r.except, pkg) {
			continue
		}
		roads := g.linked(pkg)
		if r.direct {
			maps.DeleteFunc(roads, func(to, _ string) bool { return !slices.Contains(g[pkg], to) })
		}
		for to, road := range roads {
			if r.never != nil && to != pkg && matchesAny(r.never, to) ||
				r.never == nil && !g.std(to) && !isOwn(to) && !matchesAny(r.only, to) {
				broken = append(broken, fmt.Sprintf("%s\n\t%s", road, r.why))
			}
		}
	}
	slices.Sort(broken)
	return broken
}

// isOwn reports whether a package is one of this module, for which floors has the rules.
func isOwn(pkg string) bool {
	floor, _ := place(pkg)
	return floor >= 0 || matches(kit, pkg)
}

// matches reports whether a pattern matches a package: x matches itself, x/... also everything below, and ... everything.
func matches(pattern, pkg string) bool {
	prefix, deep := strings.CutSuffix(pattern, "...")
	if !deep {
		return pattern == pkg
	}
	return strings.HasPrefix(pkg+"/", prefix)
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// load reads the import graph of the module as shipped.
func load(t *testing.T) graph {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags="+shipped, "-json=ImportPath,Imports,Standard", "./...")
	cmd.Dir = filepath.FromSlash(root)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list: %s", exit.Stderr)
		}
		t.Fatal(err)
	}
	g := make(graph)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Standard   bool
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return g
		} else if err != nil {
			t.Fatal(err)
		}
		if p.Standard {
			continue
		}
		imports := make([]string, 0, len(p.Imports))
		for _, to := range p.Imports {
			imports = append(imports, local(to))
		}
		g[local(p.ImportPath)] = imports
	}
}

// local converts a package path to the form that the rules use.
func local(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

func TestImports(t *testing.T) {
	t.Parallel()
	g := load(t)
	for _, r := range slices.Concat(links, reserved) {
		for _, broken := range g.check(r) {
			t.Error(broken)
		}
		if len(g.own(r.room)) == 0 {
			t.Errorf("no package is %q: the rule guards nothing", r.room)
		}
		for _, pattern := range r.except {
			if len(g.own(pattern)) == 0 {
				t.Errorf("no package is %q: strike it from the exceptions of %q", pattern, r.catches)
			}
		}
	}
}

// Each rule reports its own example, directly and through a package that it allows, and reports nothing that it allows.
func TestImportRulesCatch(t *testing.T) {
	t.Parallel()
	for _, r := range slices.Concat(links, reserved) {
		t.Run(r.room+" "+r.catches, func(t *testing.T) {
			t.Parallel()
			pkg := strings.Replace(r.room, "...", "x", 1)
			g := graph{pkg: {r.catches}}
			if !slices.Contains(standard, r.catches) {
				g[r.catches] = []string{}
			}
			if got := g.check(r); len(got) != 1 {
				t.Errorf("direct: %q", got)
			}

			g[pkg] = append(slices.Clone(r.only), "fmt")
			if r.never != nil {
				g[pkg] = []string{"example.org/helper"}
			}
			for _, to := range g[pkg] {
				if to != "fmt" {
					g[to] = []string{}
				}
			}
			if got := g.check(r); len(got) != 0 {
				t.Errorf("allowed: %q", got)
			}
			if g.std(g[pkg][0]) {
				return // only the standard library is allowed
			}

			g[g[pkg][0]] = []string{r.catches}
			if got := g.check(r); r.direct == (len(got) == 1) {
				t.Errorf("through another: %q", got)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, pkg string
		want         bool
	}{
		{".", ".", true},
		{".", "store", false},
		{"store", "store/disk", false},
		{"store/...", "store", true},
		{"store/...", "store/disk", true},
		{"store/...", "storefront", false},
		{"...", ".", true},
		{"...", "internal/cli", true},
	} {
		if got := matches(tt.pattern, tt.pkg); got != tt.want {
			t.Errorf("matches(%q, %q) = %v", tt.pattern, tt.pkg, got)
		}
	}
}
