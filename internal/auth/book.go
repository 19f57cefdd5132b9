package auth

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/weirlimits/weir/internal/reload"
)

// maxToken is how long a token may be. Ours are far shorter; what is longer is not worth hashing.
const maxToken = 512

// Book knows the tokens of a file, and follows it: a change is in force within a second. It is safe for concurrent use.
// In a nil book everybody is [Anybody].
type Book struct{ tokens *reload.Value[tokens] }

// tokens are by the hash of the token. A look-up by hash takes as long whatever part of a token is right: who guesses
// cannot steer the hash.
type tokens map[[sha256.Size]byte]holder

type holder struct {
	principal *Principal
	expires   time.Time // zero: never
}

// Open reads a file of tokens. When the file is bad later, or gone, the tokens stay as they were and the log says so
// once. Errors name the line and the remedy.
func Open(path string, log *slog.Logger) (*Book, error) {
	load := func() (tokens, error) {
		entries, info, err := read(path)
		if err != nil {
			return nil, err
		}
		ts, err := index(path, entries)
		if err == nil && loose(info) {
			log.Warn("others can read the token file", slog.String("file", path), slog.String("mode", info.Mode().String()),
				slog.String("remedy", "chmod 600 "+path))
		}
		return ts, err
	}
	failed := func(err error) {
		log.Error("the token file cannot be used: the tokens stay as they were", slog.Any("error", err))
	}
	v, err := reload.Open(load, failed, path)
	if err != nil {
		return nil, err
	}
	return &Book{v}, nil
}

// loose reports whether a file can be read by others than its owner and group, or written by others than its owner.
func loose(info fs.FileInfo) bool {
	return runtime.GOOS != "windows" && info.Mode().Perm()&0o037 != 0
}

func index(path string, entries []Entry) (tokens, error) {
	ts := make(tokens, len(entries))
	names := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		hash, err := e.check()
		if err == nil && names[e.Name] {
			err = fmt.Errorf("name: %q comes twice: each token needs its own, so that it can be revoked", e.Name)
		}
		if _, twice := ts[hash]; err == nil && twice {
			err = fmt.Errorf("hash: %q has the token of another entry: make one with weir token create", e.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("token file %s:%d: %w", path, e.line, err)
		}
		names[e.Name] = true
		ts[hash] = holder{&Principal{Name: e.Name, roles: e.Roles, namespaces: e.Namespaces}, e.Expires}
	}
	return ts, nil
}

// Authenticate returns the principal of a token, or false if the token is not in the file or has expired.
func (b *Book) Authenticate(token string) (*Principal, bool) {
	if b == nil {
		return anybody, true
	}
	if len(token) > maxToken {
		token = "" // takes as long as any other that is wrong
	}
	h, ok := b.tokens.Get()[sha256.Sum256([]byte(token))]
	if !ok || token == "" || !h.expires.IsZero() && !time.Now().Before(h.expires) {
		return nil, false
	}
	return h.principal, true
}

// read reads the entries of a token file.
func read(path string) ([]Entry, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read token file: %w: make one with weir token create --file %s", err, path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read token file: %w", err)
	}
	entries, err := decode(path, f)
	return entries, info, err
}
