package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/serve/reload"
)

// maxToken is the maximum length of a token. Ours are far shorter; longer ones are not worth hashing.
const maxToken = 512

// Book holds the tokens of a file and follows the file: a change takes effect within a second. It is safe for
// concurrent use. In a nil Book, every token belongs to [Anybody].
type Book struct{ tokens *reload.Value[tokens] }

// tokens maps keys to their holders. The time of a look-up by hash does not depend on how much of a guess is right,
// because a guesser cannot control the hash.
type tokens map[key]holder

type holder struct {
	principal *Principal
	expires   time.Time // zero: never
}

func (h *holder) valid() bool { return h.expires.IsZero() || time.Now().Before(h.expires) }

// Open reads a token file. If the file later becomes invalid or disappears, the tokens stay as they were and the log
// reports that once. Errors name the line and the remedy.
func Open(path string, log *slog.Logger) (*Book, error) {
	load := func() (tokens, error) {
		entries, err := read(path)
		if err != nil {
			return nil, err
		}
		ts, err := index(path, entries)
		if names := earlier(entries); err == nil && len(names) > 0 {
			log.Warn("tokens of an earlier version expire only if their entries state it, and may use Envoy's service",
				slog.String("file", path), slog.String("tokens", strings.Join(names, ", ")),
				slog.String("remedy", "replace them, or state permissions in their entries"))
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

// earlier returns the names of the entries that an earlier version has made.
func earlier(entries []Entry) (names []string) {
	for i := range entries {
		if entries[i].Earlier() {
			names = append(names, entries[i].Name)
		}
	}
	return names
}

func index(path string, entries []Entry) (tokens, error) {
	ts := make(tokens, len(entries))
	names := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		k, err := e.check()
		if err == nil && names[e.Name] {
			err = fmt.Errorf("name: %q is a duplicate: each token needs its own name, so that it can be revoked",
				e.Name)
		}
		if other, twice := ts[k]; err == nil && twice {
			err = fmt.Errorf("hash: %q has the same token as %q: make a new one with weir token create", e.Name,
				other.principal.Name)
			if e.Certificate != "" {
				err = fmt.Errorf("certificate: %q has the same as %q", e.Name, other.principal.Name)
			}
		}
		switch {
		case err != nil && e.line == 0: // of an entry to be added
			return nil, fmt.Errorf("token file %s: %w", path, err)
		case err != nil:
			return nil, fmt.Errorf("token file %s:%d: %w", path, e.line, err)
		}
		names[e.Name] = true
		ts[k] = holder{&Principal{
			Name: e.Name, key: k, roles: e.Roles, permissions: e.Granted(), namespaces: e.Namespaces,
			entities: e.Entities, resources: e.Resources,
		}, e.Expires}
	}
	return ts, nil
}

// Authenticate returns the principal of a request's token or, if it has none, of a name in the certificate that its
// client has presented and the server has verified. It returns false if the file has none, or it has expired.
func (b *Book) Authenticate(token string, conn *tls.ConnectionState) (*Principal, bool) {
	if b == nil {
		return anybody, true
	}
	tokens := b.tokens.Get()
	if token == "" && conn != nil && len(conn.PeerCertificates) > 0 {
		cert := conn.PeerCertificates[0]
		if time.Now().After(cert.NotAfter) { // since the connection began
			return nil, false
		}
		return tokens.certified(cert)
	}
	if len(token) > maxToken {
		token = "" // takes as long as any other wrong token
	}
	h, ok := tokens[key{hash: sha256.Sum256([]byte(token))}]
	if !ok || token == "" || !h.valid() {
		return nil, false
	}
	return h.principal, true
}

// certified returns the principal of the first name in a certificate that has one.
func (ts tokens) certified(cert *x509.Certificate) (*Principal, bool) {
	names := slices.Clone(cert.DNSNames)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	for _, name := range names {
		if h, ok := ts[certified(name)]; ok && h.valid() {
			return h.principal, true
		}
	}
	return nil, false
}

// Certificates reports whether an entry is for a certificate.
func (b *Book) Certificates() bool {
	for k := range b.tokens.Get() {
		if k.certificate != "" {
			return true
		}
	}
	return false
}

// Recheck is how often the token of a request that takes long is checked again.
const Recheck = 30 * time.Second

// Current reports whether the token of a principal still exists, has not expired, and grants what it did when the
// principal was authenticated.
func (b *Book) Current(p *Principal) bool {
	if b == nil {
		return true
	}
	h, ok := b.tokens.Get()[p.key]
	return ok && h.valid() && (h.principal == p || reflect.DeepEqual(h.principal, p))
}

// read reads the entries of a token file. It refuses a file that other users may read or change.
func read(path string) ([]Entry, error) {
	text, err := secret.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("read token file: %w: make one with weir token create --file %s", err, path)
	case err != nil:
		return nil, fmt.Errorf("read token file: %w", err)
	}
	return decode(path, bytes.NewReader(text))
}
