// Command summary reads what go test -json prints from standard input. It prints the output of tests that failed and a
// line per package, and last how many tests passed, failed and were skipped, with what the skipped ones lacked. It
// exits with 1 if a test or a build failed, or if no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct{ Action, Package, ImportPath, Test, Output string }

// lacks maps a part of a skip's reason to the tool that the test lacks. Other skips count as "not here".
var lacks = []struct{ reason, tool string }{
	{"redis", "redis-server"}, {"npm", "npm"}, {"engine", "npm"}, {"moto", "Python"}, {"cfn-lint", "Python"},
}

type summary struct {
	out                     io.Writer
	passed, failed, skipped int
	missing                 map[string]int                 // skipped tests, by what they lack
	output                  map[[2]string]*strings.Builder // of tests that have not ended, by package and name
	broken                  bool                           // a package failed, perhaps outside its tests
}

func main() {
	s := newSummary(os.Stdout)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !s.end() {
		os.Exit(1)
	}
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, missing: make(map[string]int), output: make(map[[2]string]*strings.Builder)}
}

func (s *summary) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(s.out, lines.Text()) // of the go command itself
			continue
		}
		s.add(e)
	}
	return lines.Err()
}

func (s *summary) add(e event) {
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL")) {
			fmt.Fprint(s.out, e.Output)
			return
		}
		if s.output[key] == nil {
			s.output[key] = new(strings.Builder)
		}
		s.output[key].WriteString(e.Output)
	case "pass", "fail", "skip":
		s.ended(e, s.output[key])
		delete(s.output, key)
	}
}

func (s *summary) ended(e event, output *strings.Builder) {
	text := ""
	if output != nil {
		text = output.String()
	}
	if e.Action == "fail" {
		s.broken = true
		fmt.Fprint(s.out, text)
	}
	switch {
	case e.Test == "":
	case e.Action == "pass":
		s.passed++
	case e.Action == "fail":
		s.failed++
	default:
		s.skipped++
		s.missing[tool(text)]++
	}
}

// tool returns what a skipped test lacks, by what it printed.
func tool(text string) string {
	for _, l := range lacks {
		if strings.Contains(strings.ToLower(text), l.reason) {
			return l.tool
		}
	}
	return ""
}

// end prints the last line and reports whether all went well.
func (s *summary) end() bool {
	for key, text := range s.output { // the program ended before these tests did
		if s.broken && key[1] != "" {
			s.failed++
			fmt.Fprintf(s.out, "%s%s.%s did not end\n", text, key[0], key[1])
		}
	}
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(s.missing)) {
		if name == "" {
			reasons = append(reasons, fmt.Sprintf("%d elsewhere or on purpose", s.missing[name]))
		} else {
			reasons = append(reasons, fmt.Sprintf("%d for lack of %s", s.missing[name], name))
		}
	}
	if len(reasons) > 0 {
		fmt.Fprintln(s.out, "skipped:", strings.Join(reasons, ", "))
	}
	fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, s.skipped)
	return !s.broken && s.passed > 0
}
