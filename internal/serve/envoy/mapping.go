package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/answer"
)

// Mapping maps domains and descriptors to entities, resources and tokens. A nil Mapping applies the built-in rule to
// every domain:
//
//   - the entity is the value of the first of entity, api_key, user, tenant and remote_address that the descriptor has
//     and that is not empty; otherwise all its entries, as key=value separated by commas. The value of api_key, and of
//     other keys with the name of a secret, is hashed: key-…, as of httplimit.KeyID;
//   - the resource is the value of the first of resource, route, path and model; otherwise the domain;
//   - the hits are debited from each limit that counts requests.
type Mapping struct {
	domains map[string]*domain // "*" applies to domains that are not listed
}

// domain holds the rules for a domain's descriptors. The first rule that matches applies.
type domain struct {
	namespace string // "" means the limiter's
	rules     []rule
	builtin   bool // the built-in rule applies to what no other rule matches
}

// rule maps descriptors with certain entries.
type rule struct {
	match            []pattern // matches all entries, in order
	entity, resource template
	tokens           []amount // if empty, the hits from each limit that counts requests
	forced           bool     // debited even if it does not fit
}

// pattern matches an entry by its key and, optionally, its value or a prefix of it.
type pattern struct {
	key, value string
	valued     bool
	prefix     bool
}

func (p *pattern) matches(e *ratelimitv3.RateLimitDescriptor_Entry) bool {
	switch {
	case p.key != e.GetKey():
		return false
	case p.prefix:
		return strings.HasPrefix(e.GetValue(), p.value)
	}
	return !p.valued || p.value == e.GetValue()
}

// amount is how much a request is debited from a limit.
type amount struct {
	limit string
	fixed int64 // 0 means the hits
}

// template is text that contains values of a descriptor.
type template []part

// part is text, the value of an entry or the domain.
type part struct {
	text  string
	entry int  // index in the descriptor; -1 for text, -2 for the domain
	hash  bool // the value is a secret, of which the ID is taken
}

const (
	isText   = -1
	isDomain = -2
)

func (t template) fill(domain string, d *ratelimitv3.RateLimitDescriptor) string {
	if len(t) == 1 {
		return t[0].fill(domain, d)
	}
	var b strings.Builder
	for i := range t {
		b.WriteString(t[i].fill(domain, d))
	}
	return b.String()
}

func (p *part) fill(domain string, d *ratelimitv3.RateLimitDescriptor) string {
	switch p.entry {
	case isText:
		return p.text
	case isDomain:
		return domain
	}
	value := d.GetEntries()[p.entry].GetValue()
	if p.hash {
		return hashed(value)
	}
	return value
}

// hashed returns the ID of a secret. Without a secret, there is none.
func hashed(secret string) string {
	if secret == "" {
		return ""
	}
	return answer.SecretID(secret)
}

// secrets are the keys, in lower case and with _ for -, whose values the built-in rule takes for secrets.
var secrets = map[string]bool{
	"api_key": true, "apikey": true, "x_api_key": true, "x_goog_api_key": true,
	"authorization": true, "proxy_authorization": true, "cookie": true, "token": true, "access_token": true,
}

// IsSecret reports whether the built-in rule takes the values of a key for secrets.
func IsSecret(key string) bool { return secrets[strings.ReplaceAll(strings.ToLower(key), "-", "_")] }

// id returns the value of an entry; of a secret, its ID.
func id(e *ratelimitv3.RateLimitDescriptor_Entry) string {
	if IsSecret(e.GetKey()) {
		return hashed(e.GetValue())
	}
	return e.GetValue()
}

// Target is what a descriptor maps to.
type Target struct {
	Entity, Resource string
	Rule             int  // number in the domain, from 1; 0 for the built-in rule
	Forced           bool // the hits are debited even if they do not fit

	tokens []amount
}

// Namespace returns the namespace of a domain; "" means the limiter's. ok is false if the mapping does not have the
// domain.
func (m *Mapping) Namespace(name string) (namespace string, ok bool) {
	d := m.find(name)
	if d == nil {
		return "", false
	}
	return d.namespace, true
}

var builtin = &domain{builtin: true}

func (m *Mapping) find(name string) *domain {
	if m == nil {
		return builtin
	}
	if d := m.domains[name]; d != nil {
		return d
	}
	return m.domains["*"]
}

// Target returns what a descriptor maps to. ok is false if the mapping does not have the descriptor.
func (m *Mapping) Target(domain string, d *ratelimitv3.RateLimitDescriptor) (t Target, ok bool) {
	dom := m.find(domain)
	entries := d.GetEntries()
	if dom == nil || len(entries) == 0 {
		return t, false
	}
next:
	for i := range dom.rules {
		r := &dom.rules[i]
		if len(r.match) != len(entries) {
			continue
		}
		for j := range entries {
			if !r.match[j].matches(entries[j]) {
				continue next
			}
		}
		return Target{
			Entity: identify(r.entity.fill(domain, d)), Resource: identify(r.resource.fill(domain, d)),
			Rule: i + 1, Forced: r.forced, tokens: r.tokens,
		}, true
	}
	if !dom.builtin {
		return t, false
	}
	t.Entity = first(entries, "entity", "api_key", "user", "tenant", "remote_address")
	if t.Entity == "" {
		t.Entity = joined(entries)
	}
	if t.Resource = first(entries, "resource", "route", "path", "model"); t.Resource == "" {
		t.Resource = domain
	}
	t.Entity, t.Resource = identify(t.Entity), identify(t.Resource)
	return t, true
}

// first returns the value of the first key that has one.
func first(entries []*ratelimitv3.RateLimitDescriptor_Entry, keys ...string) string {
	for _, key := range keys {
		for _, e := range entries {
			if e.GetKey() == key && e.GetValue() != "" {
				return id(e)
			}
		}
	}
	return ""
}

func joined(entries []*ratelimitv3.RateLimitDescriptor_Entry) string {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e.GetKey())
		b.WriteByte('=')
		b.WriteString(id(e))
	}
	return b.String()
}

// identify returns an id for text that a client may have chosen: the text itself, or its hash if the text is not a
// valid id because it is too long, empty or reserved. So clients that send such text are limited like all others.
func identify(text string) string {
	if (admin.Scope{Entity: text}).Validate() == nil && text != "" {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Tokens describes what is debited, such as "tpm: hits, rpm: 1".
func (t *Target) Tokens() string {
	if len(t.tokens) == 0 {
		return "its hits of each limit that counts requests"
	}
	texts := make([]string, len(t.tokens))
	for i, a := range t.tokens {
		texts[i] = a.limit + ": hits"
		if a.fixed > 0 {
			texts[i] = a.limit + ": " + strconv.FormatInt(a.fixed, 10)
		}
	}
	return strings.Join(texts, ", ")
}

// ParseDescriptor parses KEY=VALUE pairs separated by commas.
func ParseDescriptor(text string) (*ratelimitv3.RateLimitDescriptor, error) {
	d := &ratelimitv3.RateLimitDescriptor{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, &weir.ConfigError{Field: "descriptor", Reason: strconv.Quote(pair) + " is not KEY=VALUE"}
		}
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}
