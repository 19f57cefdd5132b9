package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimits/weir"
)

// Options say how to read manifests.
type Options struct {
	// Set gives declared variables their values.
	Set map[string]string
	// Env looks up a declared variable that is not in Set. Nil means no environment.
	Env func(name string) (string, bool)
	// Texts allows numbers and booleans as text, as CloudFormation passes them.
	Texts bool
}

// Reader reads YAML files of other formats as strictly as manifests, and collects all mistakes, each with its place.
// When one of its methods returns false, the mistake is already recorded.
type Reader struct {
	opts   Options
	src    *Source
	vars   map[string]*variable // of the document
	errs   Errors
	visits int // of nodes; aliases can multiply them
}

// maxVisits limits how far aliases can expand a source beyond its size.
const maxVisits = 500_000

// maxErrors is how many mistakes of a source are reported.
const maxErrors = 1000

// maxExcerpts is how many mistakes of a source are shown with their line.
const maxExcerpts = 100

// Read passes the only document of a source to f. Its error is of type [Errors].
func Read(src Source, f func(r *Reader, root *yaml.Node)) error {
	r := &Reader{src: &src}
	docs := r.documents()
	switch {
	case len(docs) > 1:
		r.bad(docs[1], "", "", "is a second document: put everything in one")
	case len(docs) == 1:
		f(r, docs[0])
		if r.tired() {
			r.bad(docs[0], "", "", "has too many aliases")
		}
	case len(r.errs) > 0:
		r.errs[0].Hint = "" // it is about manifests
	}
	if len(r.errs) > 0 {
		r.errs.sort()
		return r.errs
	}
	return nil
}

// Bad records a mistake at a node; path and hint may be "".
func (d *Reader) Bad(n *yaml.Node, path, hint, message string) { d.bad(n, path, hint, "%s", message) }

func (d *Reader) bad(n *yaml.Node, path, hint, format string, args ...any) {
	if len(d.errs) >= maxErrors {
		return
	}
	diag := &Diagnostic{
		File: d.src.Name, Line: max(1, n.Line), Column: max(1, n.Column),
		Path: path, Message: fmt.Sprintf(format, args...), Hint: hint, width: 1,
	}
	if len(d.errs) < maxExcerpts {
		diag.Excerpt = d.src.line(diag.Line)
	}
	if n.Kind == yaml.ScalarNode {
		text, _, _ := strings.Cut(n.Value, "\n")
		if diag.width = utf8.RuneCountInString(text); n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			diag.width += 2
		}
	}
	d.errs = append(d.errs, diag)
}

// follow resolves an alias.
func (d *Reader) follow(n *yaml.Node) *yaml.Node {
	d.visits++
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// tired reports whether aliases expanded the source too far.
func (d *Reader) tired() bool { return d.visits > maxVisits+len(d.src.Text) }

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
func (d *Reader) Mapping(n *yaml.Node, path string, member func(key string, k, v *yaml.Node)) bool {
	n = d.follow(n)
	if n.Kind != yaml.MappingNode {
		hint := ""
		if kindOf(n) == "null" {
			hint = "fill it in, or leave it out"
		}
		d.bad(n, path, hint, "is %s, not a mapping", kindOf(n))
		return false
	}
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content) && !d.tired(); i += 2 {
		k, v := d.follow(n.Content[i]), n.Content[i+1]
		key, ok := d.key(k, path)
		if !ok {
			continue
		}
		if first := seen[key]; first != nil {
			d.bad(k, path, "", "duplicate key %s, first in line %d", quote(key), first.Line)
			continue
		}
		seen[key] = k
		member(key, k, v)
	}
	return true
}

var plainInt = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// key returns the text of a key. A number is taken as written.
func (d *Reader) key(k *yaml.Node, path string) (string, bool) {
	switch tag := k.ShortTag(); {
	case k.Kind != yaml.ScalarNode:
		d.bad(k, path, "", "has a key that is %s", kindOf(k))
	case tag == "!!str", tag == "!!int" && plainInt.MatchString(k.Value):
		return k.Value, true
	case tag == "!!merge":
		d.bad(
			k, path, "repeat what is to be merged, or use an alias for the whole mapping",
			"merge keys are not supported",
		)
	default:
		d.bad(k, path, "write it in quotes: "+strconv.Quote(k.Value), "has a key that is %s", kindOf(k))
	}
	return "", false
}

// Fields is mapping for known keys.
func (d *Reader) Fields(n *yaml.Node, path string, allowed []string, member func(key string, v *yaml.Node)) bool {
	return d.Mapping(n, path, func(key string, k, v *yaml.Node) {
		if slices.Contains(allowed, key) {
			member(key, v)
			return
		}
		d.bad(k, path, hint(key, allowed), "unknown key %s", quote(key))
	})
}

// List calls item for each item of a list, with its path.
func (d *Reader) List(n *yaml.Node, path string, item func(path string, v *yaml.Node)) bool {
	n = d.follow(n)
	if n.Kind != yaml.SequenceNode {
		d.bad(n, path, "", "is %s, not a list", kindOf(n))
		return false
	}
	for i, v := range n.Content {
		if d.tired() {
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

func (d *Reader) scalar(n *yaml.Node, path, want string) (s scalar, ok bool) {
	n = d.follow(n)
	if n.Kind != yaml.ScalarNode {
		d.bad(n, path, "", "is %s, not %s", kindOf(n), want)
		return s, false
	}
	s = scalar{text: n.Value, tag: n.ShortTag(), loose: d.opts.Texts}
	if s.tag == "!!str" && strings.Contains(s.text, "${") {
		text, filled, good := d.fill(n, path)
		s.text, s.loose = text, s.loose || filled
		return s, good
	}
	return s, true
}

// Text reads text.
func (d *Reader) Text(n *yaml.Node, path string) (string, bool) {
	s, ok := d.scalar(n, path, "text")
	if ok && s.tag != "!!str" {
		hint := ""
		if s.tag != "!!null" {
			hint = "write it in quotes: " + strconv.Quote(s.text)
		}
		d.bad(d.follow(n), path, hint, "is %s, not text", kindOf(d.follow(n)))
		return "", false
	}
	return s.text, ok
}

// IsText reports whether a node is text, as Text reads it.
func (d *Reader) IsText(n *yaml.Node) bool {
	n = d.follow(n)
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}

// Truth reads true or false.
func (d *Reader) Truth(n *yaml.Node, path string) (value, ok bool) {
	s, ok := d.scalar(n, path, "true or false")
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
	d.bad(d.follow(n), path, "allowed: true, false", "is %s, not true or false", kindOf(d.follow(n)))
	return false, false
}

const countHint = "write a whole number of at least 1, such as 500, 50K or 2M"

var countText = regexp.MustCompile(`^[0-9]+[KM]?$`)

// Count reads a whole number of tokens, at least 1.
func (d *Reader) Count(n *yaml.Node, path string) (int64, bool) {
	s, ok := d.scalar(n, path, "a number")
	if !ok {
		return 0, false
	}
	at := d.follow(n)
	suffixed := strings.HasSuffix(s.text, "K") || strings.HasSuffix(s.text, "M")
	switch {
	case s.tag == "!!float" && plainInt.MatchString(s.text): // more than 64 bits
		d.bad(at, path, "", "%s is too large: at most %d", s.text, int64(weir.MaxTokens))
		return 0, false
	case s.tag == "!!float":
		d.bad(at, path, countHint, "%s is not a whole number", s.text)
		return 0, false
	case s.tag == "!!int", s.tag == "!!str" && (s.loose || suffixed):
	case s.tag == "!!str" && countText.MatchString(s.text):
		d.bad(at, path, "write "+s.text+" without quotes", "is text, not a number")
		return 0, false
	default:
		d.bad(at, path, countHint, "is %s, not a number", kindOf(at))
		return 0, false
	}
	if strings.HasPrefix(s.text, "-") {
		d.bad(at, path, countHint, "%s is negative", s.text)
		return 0, false
	}
	if !countText.MatchString(s.text) || s.tag == "!!int" && !plainInt.MatchString(s.text) {
		d.bad(at, path, countHint, "%s is not a decimal whole number", quote(s.text))
		return 0, false
	}
	unit := int64(1)
	digits := strings.TrimRight(s.text, "KM")
	switch s.text[len(digits):] {
	case "K":
		unit = 1_000
	case "M":
		unit = 1_000_000
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case err != nil || v > weir.MaxTokens/unit:
		d.bad(at, path, "", "%s is too large: at most %d", s.text, int64(weir.MaxTokens))
		return 0, false
	case v == 0:
		d.bad(at, path, countHint, "must be at least 1")
		return 0, false
	}
	return v * unit, true
}

const periodHint = "write seconds, such as 60, or a duration of one unit: ms, s, m, h, d, w, such as 1h or 30d"

var periodText = regexp.MustCompile(`^[0-9]+(ns|us|ms|s|m|min|h|d|w)$`)

// period reads a duration: seconds, or a number with a unit.
func (d *Reader) period(n *yaml.Node, path string) (time.Duration, bool) {
	s, ok := d.scalar(n, path, "a duration")
	if !ok {
		return 0, false
	}
	at, text := d.follow(n), s.text
	switch {
	case s.tag == "!!int" && plainInt.MatchString(text), s.tag == "!!str" && s.loose && plainInt.MatchString(text):
		text += "s"
	case s.tag == "!!str" && periodText.MatchString(text):
	case s.tag == "!!float":
		d.bad(at, path, periodHint, "%s is not a whole number of seconds", text)
		return 0, false
	case s.tag == "!!int" && strings.HasPrefix(text, "-"):
		d.bad(at, path, periodHint, "%s is negative", text)
		return 0, false
	case s.tag == "!!str":
		d.bad(at, path, periodHint, "%s is not a duration", quote(text))
		return 0, false
	default:
		d.bad(at, path, periodHint, "is %s, not a duration", kindOf(at))
		return 0, false
	}
	l, err := weir.ParseLimit("x:1/" + text)
	if err != nil {
		reason := "must be at most 366 days"
		if strings.Trim(text, "0nusmhdwi") == "" {
			reason = "must be at least 1"
		}
		d.bad(at, path, periodHint, "%s", reason)
		return 0, false
	}
	return l.Period, true
}
