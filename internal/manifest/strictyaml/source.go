package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Source is the text of a file. Messages about it use its line numbers.
type Source struct {
	Name string
	Text []byte
}

// MaxSource is the maximum size of a file in bytes.
const MaxSource = 64 << 20

// Open reads files. For a directory it reads the files ending in .yaml, .yml or .json, and for "-" stdin.
func Open(names []string, stdin io.Reader) ([]Source, error) {
	var all []Source
	read := func(name string, r io.Reader) error {
		text, err := io.ReadAll(io.LimitReader(r, MaxSource+1))
		if err != nil {
			return fmt.Errorf("read YAML: %w", err)
		}
		if len(text) > MaxSource {
			return fmt.Errorf("%s has more than %d MiB: divide it", name, MaxSource>>20)
		}
		if !slices.ContainsFunc(all, func(s Source) bool { return s.Name == name }) {
			all = append(all, Source{name, text})
		}
		return nil
	}
	for _, name := range names {
		if name == "-" {
			if err := read("stdin", stdin); err != nil {
				return nil, err
			}
			continue
		}
		files, err := filesOf(name)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			f, err := open(name, file)
			if err != nil {
				return nil, fmt.Errorf("read YAML: %w", err)
			}
			if err := errors.Join(read(file, f), f.Close()); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// open opens a file, which is in the folder called name, or is itself called so. A link must not lead out of that
// folder, nor of the current one if the name is within it: mistakes are shown with lines of the file, and whoever opens
// a pull request can add links, but must not read what else is on the machine.
func open(name, file string) (*os.File, error) {
	root, inside, err := Below(name)
	switch {
	case err != nil:
		return nil, err
	case root == nil && name == file:
		return os.Open(file)
	case root == nil:
		root, err = os.OpenRoot(name)
	case name != file:
		here := root
		root, err = here.OpenRoot(inside)
		_ = here.Close()
	}
	if err != nil {
		return nil, followed(name, err)
	}
	defer root.Close()
	if name != file {
		if inside, err = filepath.Rel(name, file); err != nil {
			return nil, err
		}
	}
	f, err := root.Open(inside)
	return f, followed(file, err)
}

// followed explains an error of a name that may be a link.
func followed(name string, err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w: if %s is a link that leads out of the folder, name what it leads to", err, name)
}

// Below opens the current folder and returns a name relative to it, if the name, without the links that it may end in,
// is within it. Else root is nil.
func Below(name string) (root *os.Root, rel string, err error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, "", err
	}
	here, err := os.Stat(".")
	if err != nil {
		return nil, "", err
	}
	for folder := path; ; folder = filepath.Dir(folder) {
		if info, err := os.Stat(folder); err == nil && os.SameFile(here, info) {
			if rel, err = filepath.Rel(folder, path); err != nil {
				return nil, "", err
			}
			root, err = os.OpenRoot(".")
			return root, rel, err
		}
		if folder == filepath.Dir(folder) {
			return nil, "", nil
		}
	}
}

// filesOf returns a file, or the manifests of a directory and its subdirectories.
func filesOf(name string) (files []string, err error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	err = fs.WalkDir(os.DirFS(name), ".", func(path string, e fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return fmt.Errorf("read YAML: %w", err)
		case path != "." && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
		case !e.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json"):
			files = append(files, filepath.Join(name, path))
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("folder %s holds no manifest: none of its files ends in .yaml, .yml or .json", name)
	}
	return files, err
}

// mapping is the beginning of a text whose first line, apart from comments, is a key or a bracket.
var mapping = regexp.MustCompile(`^\x{feff}?(?:[ \t]*(?:#[^\n]*|---[ \t\r]*|%[^\n]*|\r)?\n)*[ \t]*` +
	`(?:\{|"[^"\n]*"[ \t]*:|'[^'\n]*'[ \t]*:|[^\s:=]+[ \t]*:(?:\s|$))`)

// line returns a line of the text, from 1, limited to a readable length; "" if the text is no mapping and thus rather
// something else, such as a file of secrets that was named by mistake or by a link.
func (s *Source) line(n int) string {
	if !mapping.Match(s.Text) {
		return ""
	}
	for line := range bytes.Lines(s.Text) {
		if n--; n == 0 {
			return strings.ToValidUTF8(strings.TrimRight(string(line[:min(len(line), 1<<16)]), "\r\n"), "?")
		}
	}
	return ""
}

// Pieces returns an upper bound on the number of keys, values and brackets in YAML or JSON text, without parsing it.
// The parser buffers everything inside brackets before it looks at it, with some hundred bytes per piece however
// short: count first when reading untrusted text.
func Pieces(text []byte) int {
	n, quotes, inside := 0, 0, false
	for _, c := range string(text) {
		switch c {
		case ' ', '\t', '\n', '\r', '\u0085', '\u2028', '\u2029', utf8.RuneError: // ends a line in YAML, also in UTF-16
			inside = false
		case '"', '\'': // two around a piece
			quotes++
			inside = false
		case ',', ':', '[', ']', '{', '}':
			n++
			inside = false
		default: // a piece ends at one of the characters above
			if !inside {
				n++
			}
			inside = true
		}
	}
	return n + quotes/2
}
