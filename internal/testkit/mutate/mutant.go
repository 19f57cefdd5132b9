package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mutant is a committed patch that breaks one thing.
type mutant struct {
	name   string
	path   string   // of the patch, absolute
	breaks string   // what it breaks, on one line
	test   string   // the arguments of the go test that must fail, as written
	args   []string // the same, split
}

// find reads the mutants of a directory whose names contain any of the words; no words select all.
func find(dir string, words []string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var found []mutant
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if !containsAny(name, words) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		m, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m.name = name
		if m.path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no mutants in %s", dir)
	}
	return found, nil
}

// part is the k-th of n parts of the mutants: every n-th.
type part struct{ k, n int }

func (p *part) parse(text string) error {
	if _, err := fmt.Sscanf(text, "%d/%d", &p.k, &p.n); err != nil || p.k < 1 || p.k > p.n {
		return errors.New("want K/N with 1 <= K <= N")
	}
	return nil
}

func (p part) of(all []mutant) (some []mutant) {
	for i := p.k - 1; i < len(all); i += p.n {
		some = append(some, all[i])
	}
	return some
}

func containsAny(name string, words []string) bool {
	for _, w := range words {
		if strings.Contains(name, w) {
			return true
		}
	}
	return len(words) == 0
}

// parse reads the headers in front of a patch's diff: one "# test:" and one "# breaks:".
func parse(patch []byte) (mutant, error) {
	var m mutant
	for lines := bufio.NewScanner(bytes.NewReader(patch)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "diff ") {
			break
		}
		key, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); {
		case key == "# test" && m.test == "":
			var err error
			if m.args, err = split(value); err != nil {
				return m, err
			}
			m.test = value
		case key == "# breaks" && m.breaks == "":
			m.breaks = value
		case strings.HasPrefix(line, "#"):
			return m, fmt.Errorf("unknown, empty or repeated header %q", line)
		}
	}
	if m.test == "" || m.breaks == "" {
		return m, errors.New("wants a header '# test: PACKAGE -run REGEXP' and a header '# breaks: WHAT'")
	}
	return m, nil
}

// split splits arguments at spaces, except within quotes.
func split(s string) ([]string, error) {
	var (
		args  []string
		arg   strings.Builder
		begun bool
		quote rune
	)
	for _, r := range s {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case r == quote:
			quote = 0
		case quote == 0 && r == ' ':
			if begun {
				args = append(args, arg.String())
			}
			begun = false
			arg.Reset()
		default:
			arg.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unclosed quote in %q", s)
	}
	if begun {
		args = append(args, arg.String())
	}
	return args, nil
}
