package auth

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"time"

	"github.com/weirlimits/weir/internal/serve/reload"
)

// maxToken is the maximum length of a token. Ours are far shorter; longer ones are not worth hashing.
const maxToken = 512

// Book holds the tokens of a file and follows the file: a change takes effect within a second. It is safe for
// concurrent use. In a nil Book, every token belongs to [Anybody].
type Book struct{ tokens *reload.Value[tokens] }

// tokens maps the hash of a token to its holder. The time of a look-up by hash does not depend on how much of a guess
// is right, because a guesser cannot control the hash.
type tokens map[[sha256.Size]byte]holder

type holder struct {
	principal *Principal
	expires   time.Time // zero: never
}

// Open reads a token file. If the file later becomes invalid or disappears, the tokens stay as they were and the log
// reports that once. Errors name the line and the remedy.
func Open(path string, log *slog.Logger) (*Book, error) {
	load := func() (tokens, error) {
		entries, info, err := read(path)
		if err != nil {
			return nil, err
		}
		ts, err := index(path, entries)
		if err == nil && loose(info) {
			log.Warn("the token file is open to other users", slog.String("file", path),
				slog.String("mode", info.Mode().String()),
				slog.String("remedy", "chmod 600 "+path))
		}
		return ts, err
	}
	failed := func(err error) {
		log.Error("the token file cannot be used: the previous tokens stay in force", slog.Any("error", err))
	}
	v, err := reload.Open(load, failed, path)
	if err != nil {
		return nil, err
	}
	return &Book{v}, nil
}

// loose reports whether users other than the owner and group can read a file, or users other than the owner can write
// it.
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
			err = fmt.Errorf("name: %q is a duplicate: each token needs its own name, so that it can be revoked",
				e.Name)
		}
		if _, twice := ts[hash]; err == nil && twice {
			err = fmt.Errorf("hash: %q has the same token as another entry: make a new one with weir token create",
				e.Name)
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
		token = "" // takes as long as any other wrong token
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
