package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Entry is a token as stored in its file: everything except the token itself.
type Entry struct {
	Name string `yaml:"name" json:"name"`
	// Hash is "sha256:" and the SHA-256 of the token in hex. Tokens are 256 random bits, which cannot be guessed: a
	// slow hash, as passwords need, would only slow down each request.
	Hash       string    `yaml:"hash" json:"hash"`
	Roles      []Role    `yaml:"roles,flow" json:"roles"`
	Namespaces []string  `yaml:"namespaces,flow" json:"namespaces"`         // ["*"] means all; default ["default"]
	Expires    time.Time `yaml:"expires,omitempty" json:"expires,omitzero"` // zero: never

	line int
}

const hashPrefix = "sha256:"

// nameForm is the pattern of names, which appear in audit events and logs.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// NewEntry generates a token and its entry. The token is stored nowhere else.
func NewEntry(name string, roles []Role, namespaces []string, expires time.Time) (token string, e Entry, err error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	token = "weir_" + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	e = Entry{
		Name: name, Hash: hashPrefix + hex.EncodeToString(sum[:]), Roles: roles, Namespaces: namespaces,
		Expires: expires,
	}
	_, err = e.check()
	return token, e, err
}

// check fills in defaults and returns the hash.
func (e *Entry) check() (hash [sha256.Size]byte, err error) {
	if !nameForm.MatchString(e.Name) {
		return hash, fmt.Errorf("name: %q must be 1 to 64 letters, digits, ., _, @ or -", e.Name)
	}
	text, ok := strings.CutPrefix(e.Hash, hashPrefix)
	if n, err := hex.Decode(hash[:], []byte(text)[:min(len(text), 2*len(hash))]); !ok || err != nil ||
		n != len(hash) || len(text) != 2*len(hash) {
		return hash, errors.New("hash: must be sha256: and 64 hex digits, as weir token create prints it")
	}
	if len(e.Roles) == 0 {
		return hash, errors.New("roles: must not be empty: list acquire, read or admin")
	}
	for _, r := range e.Roles {
		if !slices.Contains(Roles(), r) {
			return hash, fmt.Errorf("roles: must be acquire, read or admin: %q", r)
		}
	}
	if e.Namespaces == nil {
		e.Namespaces = []string{"default"}
	}
	if len(e.Namespaces) == 0 {
		return hash, errors.New(`namespaces: must not be empty: leave it out for default, or write ["*"] for all`)
	}
	if slices.Contains(e.Namespaces, "") {
		return hash, errors.New("namespaces: a name must not be empty")
	}
	return hash, nil
}

// decode reads a list of entries.
func decode(path string, r io.Reader) ([]Entry, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read token file %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("token file %s has more than %d MiB", path, maxFile>>20)
	}
	var nodes []yaml.Node
	var entries []Entry
	err = yaml.Unmarshal(text, &nodes) // accepts an empty file as no document
	if err == nil && nodes != nil {
		err = yaml.Load(text, &entries, yaml.WithKnownFields())
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("token file %s: %s: write a list of entries with name, hash, roles and namespaces",
			path, strings.ReplaceAll(err.Error(), "\n", " "))
	case nodes == nil: // perhaps the file is being written
		return nil, fmt.Errorf("token file %s is empty: write [] for no tokens, or make one with weir token create "+
			"--file %s", path, path)
	}
	for i := range entries {
		entries[i].line = nodes[i].Line
		if key := blank(&nodes[i]); key != "" {
			return nil, fmt.Errorf("token file %s:%d: %s: is empty: give it a value, or leave it out", path,
				nodes[i].Line, key)
		}
	}
	return entries, nil
}

// blank returns a key of an entry that has no value. A field left blank by mistake must not mean the default.
func blank(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i+1].ShortTag() == "!!null" {
			return n.Content[i].Value
		}
	}
	return ""
}

const maxFile = 4 << 20
