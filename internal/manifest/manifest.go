package manifest

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // schema.json
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/manifest/delta"
	"github.com/weirlimits/weir/internal/manifest/live"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
)

// DefaultName is the name of a manifest without one.
const DefaultName = "default"

// Manifest declares the limits and entities of a namespace, under one name.
type Manifest struct {
	Namespace string
	Name      string
	Records   map[Key]*Record
	// Moved names the manifests from which declared records move to this one.
	Moved []string
	// Keep means that records that are no longer declared are released instead of deleted: no manifest manages them.
	Keep bool

	moving map[Key]string // records that move to another manifest that was decoded with it, which they name
	files  []byte         // the text that declares it and no other; nil if there is none
}

// Key names a record: an entity, or the limits of a scope.
type Key admin.RecordID

func entityKey(id string) Key { return Key(live.Entity(id)) }

// Record is a declared record: either Entity or Limits is set. Limits are sorted by name.
type Record struct {
	admin.Declared
	at place
}

// place is the position of a declaration.
type place struct {
	file         string
	line, column int
}

func (p place) String() string { return p.file + ":" + strconv.Itoa(p.line) }

// isPlan reports whether the record is that of a plan, with its default limits, which exists for as long as the plan.
func (k Key) isPlan() bool { return k.Plan != "" && k.Resource == "" }

// String names the record for people.
func (k Key) String() string { return k.kind().name(k) }

// Compare orders keys as a manifest does: the system, plans, the total, groups, resources, entities; the entity itself
// before its limits.
func (k Key) Compare(o Key) int {
	own := 0
	if k.Own != o.Own {
		if own = 1; k.Own {
			own = -1
		}
	}
	return cmp.Or(cmp.Compare(k.kind().rank, o.kind().rank), cmp.Compare(k.Plan, o.Plan),
		cmp.Compare(k.Entity, o.Entity), own, compareOn(k.Resource, o.Resource))
}

// compareOn orders resources, then groups, then the total.
func compareOn(a, b string) int {
	rank := func(resource string) int {
		key, _ := within(resource)
		return slices.Index(mappings, key)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}

// keysOf returns the keys of records in order.
func keysOf[V any](records map[Key]V) []Key {
	return slices.SortedFunc(maps.Keys(records), Key.Compare)
}

// hash returns a short hash of a record's value, which marks the live record that declares it. Records with the same
// value have the same hash.
func hash(d *admin.Declared) string {
	var v any
	if e := d.Entity; e != nil {
		values := []any{e.ID, e.Name, e.Parent, e.Cascade, e.Metadata}
		if e.Plan != "" { // keeps the hashes of records without it unchanged
			values = append(values, e.Plan)
		}
		v = values
	} else {
		values := []any{d.Limits.Scope, limitsOf(d), d.Limits.OnUnavailable}
		if t := d.Limits.NearLimit; t != nil { // keeps the hashes of records without it unchanged
			values = append(values, t)
		}
		if r := d.Limits.Entities; r != admin.AnyEntity {
			values = append(values, r)
		}
		if g := d.Limits.Group; g != "" {
			values = append(values, "group", g)
		}
		if b := d.Limits.Bounded; len(b) > 0 {
			values = append(values, "bounded", strictyaml.FormatBounded(b))
		}
		v = values
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // text, numbers and maps of text always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// marked returns the record with the mark of a manifest.
func marked(d admin.Declared, name string) admin.Declared {
	mark := &admin.Managed{Manifest: name, Hash: hash(&d)}
	if d.Entity != nil {
		e := *d.Entity
		e.Managed = mark
		return admin.Declared{Entity: &e}
	}
	l := *d.Limits
	l.Managed = mark
	return admin.Declared{Limits: &l}
}

// limitsOf returns the limits of a record by name; nil if it has none.
func limitsOf(d *admin.Declared) []weir.Limit {
	if d.Limits == nil {
		return nil
	}
	return delta.Sorted(d.Limits.Limits)
}

// maxSource bounds the text of files that is kept, in bytes.
const maxSource = 512 << 10

// Source returns the text of the files from which the manifest was read, joined. It returns [Manifest.Text] instead if
// they declare other manifests, too, if variables were set outside of them, or if they are larger than 512 KiB.
func (m *Manifest) Source() []byte {
	if len(m.files) == 0 || len(m.files) > maxSource {
		return m.Text()
	}
	read, err := Decode([]strictyaml.Source{{Text: m.files}}, strictyaml.Options{})
	if err != nil || len(read) != 1 || read[0].Hash() != m.Hash() {
		return m.Text()
	}
	return m.files
}

// Hash returns the hash of the manifest. Manifests that declare the same have equal hashes.
func (m *Manifest) Hash() string {
	sum := sha256.Sum256(m.Text())
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Located replaces places in the manifest's text, as in the errors of a program that read it under the given name, by
// the places in the files that it is from.
func (m *Manifest) Located(message, name string) string {
	read, err := Decode([]strictyaml.Source{{Name: name, Text: m.Text()}}, strictyaml.Options{})
	if err != nil || len(read) != 1 {
		return message
	}
	places := make(map[string]string)
	for k, r := range read[0].Records {
		if own := m.Records[k]; own != nil {
			places[r.at.String()] = own.at.String()
		}
	}
	return regexp.MustCompile(regexp.QuoteMeta(name)+`:\d+`).ReplaceAllStringFunc(message, func(at string) string {
		return cmp.Or(places[at], at)
	})
}

// Schema is the manifest format as a JSON Schema, for editors. Rules that involve several values, such as no cycles
// of parents, are checked only by the decoder.
//
//go:embed schema.json
var Schema []byte
