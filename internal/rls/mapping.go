package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/weirlimits/weir"
)

// Mapping says what domains and descriptors stand for. A nil one has the built-in rule for every domain:
//
//   - the entity is the value of the first of entity, api_key, user, tenant and remote_address that the descriptor has
//     and that is not empty; else all its entries, as key=value with commas between;
//   - the resource is the value of the first of resource, route, path and model; else the domain;
//   - the hits are debited of each limit that counts requests.
type Mapping struct {
	domains map[string]*domain // "*" is for those that are not there
}

// domain is what applies to the descriptors of a domain: the first rule that matches.
type domain struct {
	namespace string // "" is the limiter's
	rules     []rule
	builtin   bool // what no rule matches goes by the built-in one
}

// rule says what descriptors with certain entries stand for.
type rule struct {
	match            []pattern // all entries, in order
	entity, resource template
	tokens           []amount // none: the hits, of each limit that counts requests
	forced           bool     // is counted whether it fits or not
}

// pattern is an entry to match: by its key, and perhaps its value or how that begins.
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

// amount is how much of a limit a request is debited.
type amount struct {
	limit string
	fixed int64 // 0: the hits
}

// template is text with values of a descriptor in it.
type template []part

// part is text, or the value of an entry, or the domain.
type part struct {
	text  string
	entry int // of the descriptor; -1 text, -2 the domain
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
	return d.GetEntries()[p.entry].GetValue()
}

// Target is what a descriptor stands for.
type Target struct {
	Entity, Resource string
	Rule             int  // of its domain, from 1; 0 is the built-in one
	Forced           bool // the hits are counted whether they fit or not

	tokens []amount
}

// Namespace returns the namespace of a domain; "" is the limiter's. It is not ok for a domain that the mapping does not
// know.
func (m *Mapping) Namespace(name string) (namespace string, ok bool) {
	d := m.find(name)
	if d == nil {
		return "", false
	}
	return d.namespace, true
}

// Namespaces returns those of all domains, each once.
func (m *Mapping) Namespaces() []string {
	if m == nil {
		return []string{""}
	}
	var all []string
	for _, d := range m.domains {
		if !slices.Contains(all, d.namespace) {
			all = append(all, d.namespace)
		}
	}
	slices.Sort(all)
	return all
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

// Target returns what a descriptor stands for. It is not ok for one that the mapping does not know.
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

// first returns the value of the first of some keys that has one.
func first(entries []*ratelimitv3.RateLimitDescriptor_Entry, keys ...string) string {
	for _, key := range keys {
		for _, e := range entries {
			if e.GetKey() == key && e.GetValue() != "" {
				return e.GetValue()
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
		b.WriteString(e.GetValue())
	}
	return b.String()
}

// identify returns an id for text that a client may have chosen: the text, or its hash if weir does not take it for an id,
// being too long, empty or reserved. Who sends such a thing is limited like everybody.
func identify(text string) string {
	if (weir.Scope{Entity: text}).Validate() == nil && text != "" {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Tokens says what is debited, for people: tpm: hits, rpm: 1.
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

// ParseDescriptor reads KEY=VALUE pairs with commas between them.
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
