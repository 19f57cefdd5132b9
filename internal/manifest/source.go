package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
			return fmt.Errorf("read manifest: %w", err)
		}
		if len(text) > MaxSource {
			return fmt.Errorf("manifest %s has more than %d MiB: divide it", name, MaxSource>>20)
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
			f, err := os.Open(file)
			if err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			if err := errors.Join(read(file, f), f.Close()); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// filesOf returns a file, or the manifests of a directory and its subdirectories.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(name, e.Name())
		switch ext := filepath.Ext(path); {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			below, err := filesOf(path)
			var none noFilesError
			if err != nil && !errors.As(err, &none) {
				return nil, err
			}
			files = append(files, below...)
		case ext == ".yaml" || ext == ".yml" || ext == ".json":
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, noFilesError(name)
	}
	return files, nil
}

// noFilesError reports a directory without manifests.
type noFilesError string

// Error names the directory and what was looked for.
func (e noFilesError) Error() string {
	return fmt.Sprintf("folder %s holds no manifest: none of its files ends in .yaml, .yml or .json", string(e))
}

// line returns a line of the text, from 1, limited to a readable length.
func (s *Source) line(n int) string {
	for line := range bytes.Lines(s.Text) {
		if n--; n == 0 {
			return strings.ToValidUTF8(strings.TrimRight(string(line[:min(len(line), 1<<16)]), "\r\n"), "?")
		}
	}
	return ""
}
