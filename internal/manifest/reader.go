package manifest

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// Reader reads a file of another format as strictly as a manifest, and collects all mistakes, each with its place.
// When one of its methods returns false, the mistake is already recorded.
type Reader struct{ d decoder }

// Read passes the only document of a source to f. Its error is of type [Errors].
func Read(src Source, f func(r *Reader, root *yaml.Node)) error {
	r := &Reader{decoder{src: &src}}
	docs := r.d.documents()
	switch {
	case len(docs) > 1:
		r.d.bad(docs[1], "", "", "is a second document: put everything in one")
	case len(docs) == 1:
		f(r, docs[0])
		if r.d.tired() {
			r.d.bad(docs[0], "", "", "has too many aliases")
		}
	case len(r.d.errs) > 0:
		r.d.errs[0].Hint = "" // it is about manifests
	}
	if len(r.d.errs) > 0 {
		r.d.errs.sort()
		return r.d.errs
	}
	return nil
}

// Bad records a mistake at a node; path and hint may be "".
func (r *Reader) Bad(n *yaml.Node, path, hint, message string) { r.d.bad(n, path, hint, "%s", message) }

// Fields calls member for each key of a mapping. Only the allowed keys may occur, each once.
func (r *Reader) Fields(n *yaml.Node, path string, allowed []string, member func(key string, v *yaml.Node)) bool {
	return r.d.fields(n, path, allowed, member)
}

// Mapping calls member for each key of a mapping. No key may occur twice.
func (r *Reader) Mapping(n *yaml.Node, path string, member func(key string, k, v *yaml.Node)) bool {
	return r.d.mapping(n, path, member)
}

// List calls item for each item of a list, with its path.
func (r *Reader) List(n *yaml.Node, path string, item func(path string, v *yaml.Node)) bool {
	n = r.d.follow(n)
	if n.Kind != yaml.SequenceNode {
		r.d.bad(n, path, "", "is %s, not a list", kindOf(n))
		return false
	}
	for i, v := range n.Content {
		if r.d.tired() {
			return false
		}
		item(fmt.Sprintf("%s[%d]", path, i), v)
	}
	return true
}

// Text reads text.
func (r *Reader) Text(n *yaml.Node, path string) (string, bool) { return r.d.text(n, path) }

// Truth reads true or false.
func (r *Reader) Truth(n *yaml.Node, path string) (value, ok bool) { return r.d.truth(n, path) }

// Count reads a whole number, at least 1.
func (r *Reader) Count(n *yaml.Node, path string) (int64, bool) { return r.d.count(n, path) }

// IsText reports whether a node is text, as Text reads it.
func (r *Reader) IsText(n *yaml.Node) bool {
	n = r.d.follow(n)
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
}
