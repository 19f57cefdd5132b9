package lastgood

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/weirlimits/weir/store"
)

// header begins a file. It names the format; the hash of everything after the first line follows it.
const header = "weir-known-1 "

type fileBody struct {
	At     time.Time   `json:"at"`
	Of     string      `json:"of,omitempty"` // the store
	Spaces []fileSpace `json:"namespaces"`
	// Instances is how many processes shared the limits; 0: not known.
	Instances int `json:"instances,omitempty"`
}

type fileSpace struct {
	ID      string       `json:"id"`
	Epoch   uint64       `json:"epoch"`
	Whole   bool         `json:"whole"`
	Records []fileRecord `json:"records"`
}

type fileRecord struct {
	Kind    store.Kind `json:"kind"`
	ID      string     `json:"id,omitempty"`
	Sub     string     `json:"sub,omitempty"`
	Version uint64     `json:"version"`
	Value   []byte     `json:"value"`
}

// ErrDamaged reports that a file is not as it was written.
var ErrDamaged = errors.New("the file is damaged")

// ErrOther reports that a file belongs to another store, for instance because two processes were given the same file.
var ErrOther = errors.New("the file belongs to another store")

// Open returns the configuration in a file. It is empty if the file does not exist or cannot be used; in the latter
// case Open also returns an error, after which the caller can continue. [Known.Save] writes the file; an empty path
// means no file. The contents of a file of another store than the one named by of are ignored.
func Open(path, of string) (*Known, error) {
	k := &Known{path: path, of: of, max: MaxRecords, spaces: make(map[string]*known)}
	if path == "" {
		return k, nil
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return k, nil
	case err == nil:
		err = k.parse(text)
	}
	if err != nil {
		k.spaces = make(map[string]*known)
		return k, fmt.Errorf("read the last known configuration: %w; it is replaced once the store answers", err)
	}
	return k, nil
}

func (k *Known) parse(text []byte) error {
	line, body, ok := bytes.Cut(text, []byte("\n"))
	sum, is := strings.CutPrefix(string(line), header)
	switch {
	case !ok || !is:
		return fmt.Errorf("%s: %w: it does not begin with %q", k.path, ErrDamaged, strings.TrimSpace(header))
	case sum != hash(body):
		return fmt.Errorf("%s: %w: its hash does not match", k.path, ErrDamaged)
	}
	var b fileBody
	if err := json.Unmarshal(body, &b); err != nil {
		return fmt.Errorf("%s: %w: %w", k.path, ErrDamaged, err)
	}
	if b.Of != k.of && b.Of != "" {
		return fmt.Errorf("%s: %w: %s, not %s", k.path, ErrOther, b.Of, k.of)
	}
	for _, s := range b.Spaces {
		sp := &known{epoch: s.Epoch, whole: s.Whole, records: make(map[store.Key]store.Record, len(s.Records))}
		for _, r := range s.Records {
			rec := store.Record{
				Key:     store.Key{Namespace: s.ID, Kind: r.Kind, ID: r.ID, Sub: r.Sub},
				Version: r.Version, Value: r.Value,
			}
			if rec.Version == 0 { // an older version of weir wrote a record that it could not read
				rec.Version, rec.Value = 1, nil
			}
			sp.records[rec.Key] = rec
		}
		k.spaces[s.ID] = sp
	}
	k.at, k.instances = b.At, b.Instances
	return nil
}

// Save writes the file if there is anything new: completely or not at all, even if the process or machine crashes.
func (k *Known) Save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.path == "" || !k.dirty {
		return nil
	}
	b := fileBody{At: k.at.UTC(), Of: k.of, Spaces: []fileSpace{}, Instances: k.instances}
	for id, sp := range k.spaces {
		s := fileSpace{ID: id, Epoch: sp.epoch, Whole: sp.whole, Records: []fileRecord{}}
		for key, r := range sp.records {
			s.Records = append(s.Records, fileRecord{key.Kind, key.ID, key.Sub, r.Version, r.Value})
		}
		b.Spaces = append(b.Spaces, s)
	}
	body, err := json.Marshal(b)
	if err == nil {
		err = replace(k.path, append([]byte(header+hash(body)+"\n"), body...))
	}
	if err != nil {
		return fmt.Errorf("write the last known configuration: %w", err)
	}
	k.dirty = false
	return nil
}

func hash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// replace writes a file atomically: readers never see it incomplete.
func replace(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // readable only by its owner
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // no-op after the rename
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil || runtime.GOOS == "windows" { // Windows cannot sync a directory
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
