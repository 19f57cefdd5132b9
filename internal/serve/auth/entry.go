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
	"unicode"

	"go.yaml.in/yaml/v4"
)

// Entry is a token as stored in its file: everything except the token itself.
type Entry struct {
	Name string `yaml:"name" json:"name"`
	// Hash is "sha256:" and the SHA-256 of the token in hex. Tokens are 256 random bits, which cannot be guessed: a
	// slow hash, as passwords need, would only slow down each request.
	Hash string `yaml:"hash,omitempty" json:"hash,omitempty"`
	// Certificate, in place of a hash, is a name in the client's certificate: a DNS name, in upper or lower case, or a
	// URI.
	Certificate string `yaml:"certificate,omitempty" json:"certificate,omitempty"`

	Roles      []Role   `yaml:"roles,flow" json:"roles"`
	Namespaces []string `yaml:"namespaces,flow" json:"namespaces"` // ["*"] means all; default ["default"]
	// Permissions is nil in an entry of an earlier version; see Earlier.
	Permissions []Permission `yaml:"permissions,flow" json:"permissions,omitzero"`
	// Entities and Resources are what the token is bound to: ids, and beginnings of ids that a * follows. Default: all.
	Entities  []string  `yaml:"entities,flow,omitempty" json:"entities,omitempty"`
	Resources []string  `yaml:"resources,flow,omitempty" json:"resources,omitempty"`
	Expires   time.Time `yaml:"expires,omitempty" json:"expires,omitzero"` // zero: never

	line int
}

// Earlier reports whether the entry does not state permissions, like those of versions that had none. Its token may use
// Envoy's service, as before, but has no other permission.
func (e *Entry) Earlier() bool { return e.Permissions == nil }

// Granted returns the permissions that the entry's token has.
func (e *Entry) Granted() []Permission {
	if e.Earlier() {
		return []Permission{Envoy}
	}
	return e.Permissions
}

// Expired reports whether the entry's token is refused because it has expired.
func (e *Entry) Expired() bool { return !e.Expires.IsZero() && !time.Now().Before(e.Expires) }

const hashPrefix = "sha256:"

// nameForm is the pattern of names, which appear in audit events and logs.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// NewEntry generates a token for an entry, unless that is for a certificate, and returns the entry with its hash. The
// token is stored nowhere else.
func NewEntry(e Entry) (token string, _ Entry, err error) {
	if e.Certificate == "" {
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // never fails
		token = "weir_" + base64.RawURLEncoding.EncodeToString(secret[:])
		sum := sha256.Sum256([]byte(token))
		e.Hash = hashPrefix + hex.EncodeToString(sum[:])
	}
	if e.Permissions == nil {
		e.Permissions = []Permission{}
	}
	_, err = e.check()
	return token, e, err
}

// key identifies the holder of an entry: by the hash of the token, or by a name in the certificate.
type key struct {
	hash        [sha256.Size]byte
	certificate string
}

// check fills in defaults and returns the key.
func (e *Entry) check() (k key, err error) {
	if !nameForm.MatchString(e.Name) {
		return k, fmt.Errorf("name: %q must be 1 to 64 letters, digits, ., _, @ or -", e.Name)
	}
	if k, err = e.key(); err != nil {
		return k, err
	}
	return k, e.checkRights()
}

// certified returns the key of the holder of a certificate with a name. Only a URI has a colon, and may depend on case.
func certified(name string) key {
	if !strings.Contains(name, ":") {
		name = strings.ToLower(name)
	}
	return key{certificate: name}
}

func (e *Entry) key() (k key, err error) {
	if e.Certificate != "" {
		if e.Hash != "" {
			return k, errors.New("certificate: cannot be combined with hash")
		}
		if strings.ContainsFunc(e.Certificate, func(r rune) bool { return r == '*' || unicode.IsSpace(r) }) {
			return k, fmt.Errorf("certificate: must be one DNS name or URI, without * or spaces: %q", e.Certificate)
		}
		return certified(e.Certificate), nil
	}
	if e.Hash == "" {
		return k, errors.New("hash: is missing: make an entry with weir token create, or give it a certificate")
	}
	text, ok := strings.CutPrefix(e.Hash, hashPrefix)
	if n, err := hex.Decode(k.hash[:], []byte(text)[:min(len(text), 2*len(k.hash))]); !ok || err != nil ||
		n != len(k.hash) || len(text) != 2*len(k.hash) {
		return k, errors.New("hash: must be sha256: and 64 hex digits, as weir token create prints it")
	}
	return k, nil
}

// checkRights checks what the token may do, and fills in defaults.
func (e *Entry) checkRights() error {
	if len(e.Roles) == 0 {
		return errors.New("roles: must not be empty: list acquire, read, credit or admin")
	}
	for _, r := range e.Roles {
		if !slices.Contains(Roles(), r) {
			return fmt.Errorf("roles: must be acquire, read, credit or admin: %q", r)
		}
	}
	for _, p := range e.Permissions {
		if !slices.Contains(Permissions(), p) {
			return fmt.Errorf("permissions: must be override, adjust, return or envoy: %q", p)
		}
	}
	if err := e.checkBindings(); err != nil {
		return err
	}
	if e.Namespaces == nil {
		e.Namespaces = []string{"default"}
	}
	if len(e.Namespaces) == 0 {
		return errors.New(`namespaces: must not be empty: leave it out for default, or write ["*"] for all`)
	}
	if slices.Contains(e.Namespaces, "") {
		return errors.New("namespaces: a name must not be empty")
	}
	return nil
}

// checkBindings checks what the token is bound to.
func (e *Entry) checkBindings() error {
	for _, b := range []struct {
		field string
		ids   []string
	}{{"entities", e.Entities}, {"resources", e.Resources}} {
		switch {
		case b.ids == nil:
		case len(b.ids) == 0:
			return fmt.Errorf("%s: must not be empty: leave it out for all", b.field)
		case slices.Contains(e.Roles, Admin):
			return fmt.Errorf("%s: cannot be combined with the role admin, whose changes reach beyond them", b.field)
		}
		for _, id := range b.ids {
			if id == "" || strings.Contains(id[:len(id)-1], "*") {
				return fmt.Errorf("%s: must be ids, or beginnings of ids that a * follows, such as team-a/*: %q",
					b.field, id)
			}
		}
	}
	return nil
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
			path, strings.NewReplacer("\n", " ", " not found in type auth.Entry", " is unknown").Replace(err.Error()))
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
