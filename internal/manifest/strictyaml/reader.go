package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/clock/nearest"
)

// Options define how to fill in variables.
type Options struct {
	// Set gives declared variables their values.
	Set map[string]string
	// Env looks up a declared variable that is not in Set; see [EnvPrefix]. Nil means no environment.
	Env func(name string) (string, bool)
	// Texts allows numbers and booleans as text, as CloudFormation passes them.
	Texts bool
}

// EnvPrefix begins the names of the environment's variables that may have a declared variable's value.
const EnvPrefix = "WEIR_VAR_"

// Reader reads a source, and collects all mistakes, each with its place. When one of its methods returns false, the
// mistake is already recorded.
type Reader struct {
	opts     Options
	src      *Source
	vars     map[string]*variable // of the document
	declared []string             // the variables of all documents
	errs     Errors
	visits   int // of nodes; aliases can multiply them
}

// New returns a reader of a source.
func New(src *Source, opts Options) *Reader { return &Reader{opts: opts, src: src} }

// maxVisits limits how far aliases can expand a source beyond its size.
const maxVisits = 500_000

// maxErrors is how many mistakes of a source are reported.
const maxErrors = 1000

// maxExcerpts is how many mistakes of a source are shown with their line.
const maxExcerpts = 100

// Read passes the only document of a source to f. Its error is of type [Errors].
func Read(src Source, f func(r *Reader, root *yaml.Node)) error {
	r := New(&src, Options{})
	first := true
	r.Documents("", func(root *yaml.Node) {
		if !first {
			r.Bad(root, "", "", "is a second document: put everything in one")
			return
		}
		first = false
		f(r, root)
	})
	return Mistakes([]*Reader{r})
}

// Mistakes returns all mistakes of sources that were read with the same options, ordered, as [Errors]. A variable that
// Set gives a value and no source declares is one. It returns nil if there are none.
func Mistakes(readers []*Reader) error {
	var errs Errors
	var set map[string]string
	var declared []string
	for _, r := range readers {
		errs, declared, set = append(errs, r.errs...), append(declared, r.declared...), r.opts.Set
	}
	slices.Sort(declared)
	for name := range set {
		if slices.Contains(declared, name) {
			continue
		}
		h := "declare it under variables"
		if near := nearest.To(name, declared); near != "" {
			h = "did you mean " + near + "?"
		}
		errs = append(errs, &Diagnostic{
			File: "--set", Line: 1, Column: 1, Message: Quote(name) + " is not declared in any manifest", Hint: h,
		})
	}
	if len(errs) == 0 {
		return nil
	}
	slices.SortStableFunc(errs, func(a, b *Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return errs
}

// Documents calls f with each non-empty document of the source. The hint is about a source without any.
func (r *Reader) Documents(hint string, f func(root *yaml.Node)) {
	for _, root := range r.documents(hint) {
		if f(root); r.tired() {
			r.Bad(root, "", "write the values out", "its aliases expand to too much text")
		}
	}
}

func (r *Reader) documents(hint string) (docs []*yaml.Node) {
	loader, err := yaml.NewLoader(bytes.NewReader(r.src.Text))
	for err == nil {
		var doc yaml.Node
		if err = loader.Load(&doc); err != nil {
			break
		}
		root := &doc
		if doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
			root = doc.Content[0]
		}
		if root.Kind != 0 && root.ShortTag() != "!!null" {
			docs = append(docs, root)
		}
	}
	if !errors.Is(err, io.EOF) {
		n := &yaml.Node{Line: 1, Column: 1}
		text := err.Error()
		if load, ok := errors.AsType[*yaml.LoadError](err); ok {
			n.Line, n.Column, text = load.Mark.Line, load.Mark.Column, load.Message
			if load.ContextMsg != "" {
				text = load.ContextMsg + ": " + text
			}
		}
		r.Bad(n, "", "", "is not YAML: %s", text)
	} else if len(docs) == 0 {
		r.Bad(&yaml.Node{Line: 1, Column: 1}, "", hint, "is empty")
	}
	return docs
}

// Bad records a mistake at a node; path and hint may be "".
func (r *Reader) Bad(n *yaml.Node, path, hint, format string, args ...any) {
	if len(r.errs) >= maxErrors {
		return
	}
	diag := &Diagnostic{
		File: r.src.Name, Line: max(1, n.Line), Column: max(1, n.Column),
		Path: path, Message: fmt.Sprintf(format, args...), Hint: hint, width: 1,
	}
	if len(r.errs) < maxExcerpts {
		diag.Excerpt = r.src.line(diag.Line)
	}
	if n.Kind == yaml.ScalarNode {
		text, _, _ := strings.Cut(n.Value, "\n")
		if diag.width = utf8.RuneCountInString(text); n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			diag.width += 2
		}
	}
	r.errs = append(r.errs, diag)
}

// Follow resolves an alias.
func (r *Reader) Follow(n *yaml.Node) *yaml.Node {
	r.visits++
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// tired reports whether aliases expanded the source too far.
func (r *Reader) tired() bool { return r.visits > maxVisits+len(r.src.Text) }

// Not records that a node is not what is wanted, such as "a list".
func (r *Reader) Not(n *yaml.Node, path, hint, want string) {
	n = r.Follow(n)
	r.Bad(n, path, hint, "is %s, not %s", kindOf(n), want)
}

// kindOf describes a node, to follow the word "is".
func kindOf(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		return "a mapping"
	}
	if n.Kind == yaml.SequenceNode {
		return "a list"
	}
	tag := n.ShortTag()
	switch tag {
	case "!!null":
		return "null"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	case "!!str":
		return "text"
	}
	return "of type " + tag
}

// Mapping calls member for each key of a mapping. It reports keys that are duplicates or not text.
func (r *Reader) Mapping(n *yaml.Node, path string, member func(key string, k, v *yaml.Node)) bool {
	n = r.Follow(n)
	if n.Kind != yaml.MappingNode {
		hint := ""
		if kindOf(n) == "null" {
			hint = "fill it in, or leave it out"
		}
		r.Not(n, path, hint, "a mapping")
		return false
	}
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for _, pair := range r.merged(n, path, 0) {
		if r.tired() {
			break
		}
		k, v := pair[0], pair[1]
		key, ok := r.key(k, path)
		if !ok {
			continue
		}
		if first := seen[key]; first != nil {
			r.Bad(k, path, "", "duplicate key %s, first in line %d", Quote(key), first.Line)
			continue
		}
		seen[key] = k
		member(key, k, v)
	}
	return true
}

// maxMerges bounds how deep merge keys are nested.
const maxMerges = 8

// merged returns the keys and values of a mapping, with those that merge keys add to it: what the mapping has itself
// comes before what is merged, and what is merged first before the rest.
func (r *Reader) merged(n *yaml.Node, path string, depth int) (pairs [][2]*yaml.Node) {
	var merges []*yaml.Node
	has := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := r.Follow(n.Content[i]), n.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge" {
			if v = r.Follow(v); v.Kind == yaml.SequenceNode {
				merges = append(merges, v.Content...)
			} else {
				merges = append(merges, v)
			}
			continue
		}
		has[k.Value] = true
		pairs = append(pairs, [2]*yaml.Node{k, v})
	}
	for _, from := range merges {
		from = r.Follow(from)
		switch {
		case r.tired():
			return pairs
		case from.Kind != yaml.MappingNode:
			r.Not(from, path, "write <<: *NAME, or <<: [*NAME, *OTHER]", "a mapping to merge")
		case depth == maxMerges:
			r.Bad(from, path, "write the values out", "merges more than %d mappings into each other", maxMerges)
		default:
			for _, pair := range r.merged(from, path, depth+1) {
				if !has[pair[0].Value] {
					has[pair[0].Value] = true
					pairs = append(pairs, pair)
				}
			}
		}
	}
	return pairs
}

var plainInt = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// key returns the text of a key, with variables filled in. A number is taken as written.
func (r *Reader) key(k *yaml.Node, path string) (string, bool) {
	switch tag := k.ShortTag(); {
	case k.Kind != yaml.ScalarNode:
		r.Bad(k, path, "", "has a key that is %s", kindOf(k))
	case tag == "!!str":
		text, _, ok := r.fill(k, path)
		return text, ok
	case tag == "!!int" && plainInt.MatchString(k.Value):
		return k.Value, true
	default:
		r.Bad(k, path, "write it in quotes: "+strconv.Quote(k.Value), "has a key that is %s", kindOf(k))
	}
	return "", false
}

// Fields is Mapping for known keys. At the top, it ignores those that begin with x-: they hold what others refer to.
func (r *Reader) Fields(n *yaml.Node, path string, allowed []string, member func(key string, v *yaml.Node)) bool {
	return r.Mapping(n, path, func(key string, k, v *yaml.Node) {
		if slices.Contains(allowed, key) {
			member(key, v)
			return
		}
		if path == "" && strings.HasPrefix(key, "x-") {
			return
		}
		r.Bad(k, path, Allowed(key, allowed), "unknown key %s", Quote(key))
	})
}

// List calls item for each item of a list, with its path.
func (r *Reader) List(n *yaml.Node, path string, item func(path string, v *yaml.Node)) bool {
	n = r.Follow(n)
	if n.Kind != yaml.SequenceNode {
		r.Not(n, path, "", "a list")
		return false
	}
	for i, v := range n.Content {
		if r.tired() {
			return false
		}
		item(fmt.Sprintf("%s[%d]", path, i), v)
	}
	return true
}

// scalar is a value as written, with variables filled in.
type scalar struct {
	text  string
	tag   string
	loose bool // from variables, or passed as text: the expected type decides
}

func (r *Reader) scalar(n *yaml.Node, path, want string) (s scalar, ok bool) {
	n = r.Follow(n)
	if n.Kind != yaml.ScalarNode {
		r.Not(n, path, "", want)
		return s, false
	}
	s = scalar{text: n.Value, tag: n.ShortTag(), loose: r.opts.Texts}
	if s.tag == "!!str" && strings.Contains(s.text, "${") {
		text, filled, good := r.fill(n, path)
		s.text, s.loose = text, s.loose || filled
		return s, good
	}
	return s, true
}

// Scalar reads a value as written, with variables filled in, and its YAML tag. want describes it.
func (r *Reader) Scalar(n *yaml.Node, path, want string) (text, tag string, ok bool) {
	s, ok := r.scalar(n, path, want)
	return s.text, s.tag, ok
}

// Text reads text.
func (r *Reader) Text(n *yaml.Node, path string) (string, bool) {
	s, ok := r.scalar(n, path, "text")
	if ok && s.tag != "!!str" {
		hint := ""
		if s.tag != "!!null" {
			hint = "write it in quotes: " + strconv.Quote(s.text)
		}
		r.Not(n, path, hint, "text")
		return "", false
	}
	return s.text, ok
}

// IsText reports whether a node is text, as Text reads it.
func (r *Reader) IsText(n *yaml.Node) bool {
	n = r.Follow(n)
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}

// Truth reads true or false.
func (r *Reader) Truth(n *yaml.Node, path string) (value, ok bool) {
	s, ok := r.scalar(n, path, "true or false")
	switch {
	case !ok:
		return false, false
	case s.tag == "!!bool" || s.loose && s.tag == "!!str":
		switch strings.ToLower(s.text) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
	}
	r.Not(n, path, "allowed: true, false", "true or false")
	return false, false
}

const countHint = "write a whole number of at least 1, such as 500, 50K or 2M"

var countText = regexp.MustCompile(`^[0-9]+[KM]?$`)

// Count reads a whole number of tokens, at least 1.
func (r *Reader) Count(n *yaml.Node, path string) (int64, bool) {
	s, ok := r.scalar(n, path, "a number")
	if !ok {
		return 0, false
	}
	at := r.Follow(n)
	number, unit := strings.CutSuffix(s.text, "K")
	factor := int64(1_000)
	if !unit {
		number, unit = strings.CutSuffix(s.text, "M")
		factor = 1_000_000
	}
	if !unit {
		factor = 1
	}
	v, err := strconv.ParseInt(number, 10, 64)
	switch isText := s.tag == "!!str"; {
	case isText && !s.loose && !unit && countText.MatchString(s.text):
		r.Bad(at, path, "write "+s.text+" without quotes", "is text, not a number")
	case isText && !s.loose && !unit, !isText && s.tag != "!!int" && s.tag != "!!float":
		r.Not(at, path, countHint, "a number")
	case !countText.MatchString(s.text), s.tag == "!!int" && !plainInt.MatchString(s.text), err == nil && v == 0:
		r.Bad(at, path, countHint, "%s is not a whole number of at least 1", Quote(s.text))
	case err != nil || v > weir.MaxTokens/factor:
		r.Bad(at, path, "", "%s is too large: at most %d", s.text, int64(weir.MaxTokens))
	default:
		return v * factor, true
	}
	return 0, false
}

const periodHint = "write seconds, such as 60, or a duration of one unit: ms, s, m, h, d, w, such as 1h or 30d"

var periodText = regexp.MustCompile(`^[0-9]+(ns|us|ms|s|m|min|h|d|w)$`)

// Period reads a duration: seconds, or a number with a unit.
func (r *Reader) Period(n *yaml.Node, path string) (time.Duration, bool) {
	s, ok := r.scalar(n, path, "a duration")
	if !ok {
		return 0, false
	}
	at, text := r.Follow(n), s.text
	switch {
	case s.tag == "!!int" && plainInt.MatchString(text), s.tag == "!!str" && s.loose && plainInt.MatchString(text):
		text += "s"
	case s.tag == "!!str" && periodText.MatchString(text):
	case s.tag == "!!str", s.tag == "!!int", s.tag == "!!float":
		r.Bad(at, path, periodHint, "%s is not a duration", Quote(text))
		return 0, false
	default:
		r.Not(at, path, periodHint, "a duration")
		return 0, false
	}
	l, err := weir.ParseLimit("x:1/" + text)
	if err != nil {
		reason := "must be at most 366 days"
		if strings.Trim(text, "0nusmhdwi") == "" {
			reason = "must be at least 1"
		}
		r.Bad(at, path, periodHint, "%s", reason)
		return 0, false
	}
	return l.Period, true
}
