package table

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/store"
)

// anyPart draws texts that may be mistaken for a key's own syntax, besides all other valid UTF-8.
func anyPart(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.StringMatching("[\x00-\x03a$#%/|0-9]{0,6}"),
		rapid.SampledFrom(
			[]string{
				"", "#", "%23", "META", "#META", "#CONFIG#",
				"\x00", "\x01", "\x01\x01", "é", "日本", "\U0010ffff", "a/b", "a#b",
			},
		),
		rapid.String(),
	).Filter(utf8.ValidString).Draw(t, label)
}

func anyKey(t *rapid.T) store.Key {
	kinds := append(
		[]store.Kind{store.KindNamespace, store.KindNamespaceID, store.KindSecret, "new", "new#x", "META", "NAMESPACE"},
		store.Kinds...,
	)
	return store.Key{
		Namespace: anyPart(t, "namespace"), Kind: rapid.SampledFrom(kinds).Draw(t, "kind"),
		ID: anyPart(t, "id"), Sub: anyPart(t, "sub"),
	}
}

// parsePrimary is the inverse of RecordKey.
func parsePrimary(p Key) (k store.Key, ok bool) {
	ns, noun, _ := strings.Cut(p.PK, "/")
	noun, of, ok := strings.Cut(noun, "#")
	if !ok || strings.ContainsAny(of, "#/") {
		return k, false
	}
	k.Namespace, of = unescaper.Replace(ns), unescaper.Replace(of)
	rest := func(word string) (string, bool) {
		if p.SK == word {
			return "", true
		}
		return strings.CutPrefix(p.SK, word+"#")
	}
	if noun == "AUDIT" {
		id, ok := rest(auditWord)
		k.Kind, k.ID, k.Sub = store.KindAudit, disorder.Replace(id), of
		return k, ok
	}
	for kind, l := range layouts {
		if sub, ok := rest(l.word); ok && noun == l.noun {
			k.Kind, k.ID, k.Sub = kind, of, disorder.Replace(sub)
			return k, true
		}
	}
	parts := func(s string) {
		id, sub, _ := strings.Cut(s, "\x00")
		k.ID, k.Sub = disorder.Replace(id), disorder.Replace(sub)
	}
	for kind, word := range systemWords {
		if s, ok := rest(word); ok && noun == "SYSTEM" {
			k.Kind = kind
			parts(s)
			return k, true
		}
	}
	s, ok := strings.CutPrefix(p.SK, "#KIND#")
	kind, s, _ := strings.Cut(s, "#")
	k.Kind = store.Kind(unescaper.Replace(kind))
	parts(s)
	return k, ok && noun == "SYSTEM"
}

// TestKeysInvertible checks that keys have an inverse, and so are injective: no two records share a place in the table
// or in an index.
func TestKeysInvertible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey(t)
		if got, ok := parsePrimary(RecordKey(k)); !ok || got != k {
			t.Errorf("%+v at %v reads as %+v", k, RecordKey(k), got)
		}
		kind, id, sub, ok := parseSort(recordSort(k))
		if got := (store.Key{Namespace: k.Namespace, Kind: store.Kind(kind), ID: id, Sub: sub}); !ok || got != k {
			t.Errorf("%+v sorted as %q reads as %+v", k, recordSort(k), got)
		}
		b := store.Bucket{Namespace: k.Namespace, Entity: k.ID, Resource: k.Sub}
		n := rapid.IntRange(0, 63).Draw(t, "shard")
		if got, shard, ok := ParseBucketKey(BucketKey(b, n).PK); !ok || got != b || shard != n {
			t.Errorf("%+v at %q reads as %+v", b, BucketKey(b, n), got)
		}
	})
}

// TestKeysApart checks that no record shares a place with an item that is not a record.
func TestKeysApart(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey(t)
		id := anyPart(t, "other")
		for what, other := range map[string]Key{
			"epoch": epochKey(k.Namespace), "version": VersionKey(), "marker": MarkerKey(id),
			"bucket": BucketKey(store.Bucket{Namespace: k.Namespace, Entity: id, Resource: k.Sub}, 0),
		} {
			if RecordKey(k) == other {
				t.Errorf("%+v has the place of a %s", k, what)
			}
		}
		if id != k.Namespace {
			for i := range partitions {
				if IndexPartition(k.Namespace, id) == partitionName(id, i) {
					t.Errorf("namespaces %q and %q share %q", k.Namespace, id, partitionName(id, i))
				}
			}
		}
		if p, q := parentPartition(k.Namespace, k.ID), parentPartition(k.Namespace, id); (p == q) != (k.ID == id) {
			t.Errorf("children of %q and %q at %q and %q", k.ID, id, p, q)
		}
		if p, q := scopePartition(k.Namespace, k.Sub), scopePartition(k.Namespace, id); (p == q) != (k.Sub == id) {
			t.Errorf("limits on %q and %q at %q and %q", k.Sub, id, p, q)
		}
	})
}

// TestKeysOrdered checks that range keys sort as their parts do.
func TestKeysOrdered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := anyKey(t)
		b := a
		b.ID, b.Sub = anyPart(t, "other id"), anyPart(t, "other sub")
		want := cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Sub, b.Sub))
		if got := cmp.Compare(recordSort(a), recordSort(b)); got != want {
			t.Errorf("%q %d %q", recordSort(a), got, recordSort(b))
		}
		p, q := RecordKey(a), RecordKey(b)
		if got := cmp.Compare(p.SK, q.SK); p.PK == q.PK && got != want {
			t.Errorf("%v %d %v", p, got, q)
		}
	})
}

// TestSpans checks that a query's Span contains what it asks for, and nothing of another kind.
func TestSpans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey(t)
		q := store.Query{
			Namespace: k.Namespace, Kind: k.Kind,
			ID:  rapid.SampledFrom([]string{"", k.ID}).Draw(t, "of id"),
			Sub: rapid.SampledFrom([]string{"", k.Sub}).Draw(t, "of sub"),
		}
		within := func(k store.Key) bool {
			it := recordItem(&store.Record{Key: k, Version: 1})
			for _, sp := range spansOf(q) {
				hash, _ := Text(it[sp.hashKey])
				at, _ := Text(it[sp.sortKey])
				if hash == sp.hash && at >= sp.lo && at <= sp.hi {
					return true
				}
			}
			return false
		}
		if !within(k) {
			t.Errorf("%+v is not within %+v", k, spansOf(q))
		}
		other := anyKey(t)
		other.Namespace, other.ID = k.Namespace, k.ID
		if other.Kind != k.Kind && within(other) {
			t.Errorf("%+v is within %+v of %+v", other, spansOf(q), q)
		}
	})
}

// TestKeysFit checks that ids of the product's length fit, whatever they consist of, and that longer ones are refused.
func TestKeysFit(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"x", "/", "%", "é", "🙂", "#"} {
		id := strings.Repeat(unit, 256/len(unit))
		for _, kind := range append(
			[]store.Kind{store.KindNamespace, store.KindNamespaceID, store.KindSecret}, store.Kinds...,
		) {
			k := store.Key{Namespace: "01234567890", Kind: kind, ID: id, Sub: "resource-limits:" + id}
			if err := checkKey("get", k, id); err != nil {
				t.Error(err)
			}
		}
		if pk := BucketKey(store.Bucket{Namespace: "01234567890", Entity: id, Resource: id}, 63).PK; len(pk) > MaxHash {
			t.Errorf("a bucket's key of %d bytes", len(pk))
		}
	}
	for _, k := range []store.Key{
		{Namespace: "n", Kind: store.KindEntity, ID: strings.Repeat("/", 700)},
		{Namespace: "n", Kind: store.KindEntityLimits, ID: "a", Sub: strings.Repeat("x", 1020)},
		{Namespace: "n", Kind: store.KindSystem, ID: strings.Repeat("x", 1020)},
		{Namespace: "n", Kind: store.KindEntity, ID: "a\xff"},
		{Namespace: "n", Kind: "a\x00b", ID: "a"},
	} {
		var known *store.Error
		if err := checkKey("get", k, ""); !errors.As(err, &known) || !errors.Is(err, store.ErrInvalid) ||
			known.Hint == "" {
			t.Errorf("%.40v: error %v", k, err)
		}
	}
	if err := checkKey(
		"commit", store.Key{Namespace: "n", Kind: store.KindEntity, ID: "a"}, strings.Repeat("/", 700),
	); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a parent of 2,100 bytes: error %v", err)
	}
}

// TestConfigKey checks that an item's key in a stream leads back to its record if that is one that decisions depend on,
// and to no other.
func TestConfigKey(t *testing.T) {
	t.Parallel()
	wanted := map[store.Kind]bool{
		store.KindEntity: true, store.KindEntityLimits: true, store.KindResourceLimits: true, store.KindSystem: true,
		store.KindPlanLimits: true, store.KindNamespace: true, store.KindNamespaceID: true,
	}
	rapid.Check(t, func(t *rapid.T) {
		k := anyKey(t)
		switch k.Kind {
		case store.KindSystem:
			k.ID, k.Sub = "", ""
		case store.KindEntity, store.KindResourceLimits, store.KindNamespace, store.KindNamespaceID:
			k.Sub = ""
		default:
		}
		if (k.Kind == store.KindNamespace || k.Kind == store.KindNamespaceID || k.Kind == store.KindEntityLimits) &&
			(k.ID == "" || k.Kind == store.KindEntityLimits && k.Sub == "") {
			return // there are no such keys
		}
		p := RecordKey(k)
		got, ok := ConfigKey(p.PK, p.SK)
		if ok != wanted[k.Kind] || ok && got != k {
			t.Fatalf("%s is %v, %v, want %v", p, got, ok, k)
		}
	})
	for _, p := range []Key{
		epochKey("default"), VersionKey(), BucketKey(store.Bucket{Namespace: "n", Entity: "e", Resource: "r"}, 0),
		MarkerKey("x"),
		{},
		{"x", "#META"},
	} {
		if k, ok := ConfigKey(p.PK, p.SK); ok {
			t.Errorf("%s is %v", p, k)
		}
	}
}

// TestAuditKey checks that an event's key can be read from its item's key, and that no other item is taken for an
// event.
func TestAuditKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringMatching(`[a#%/\x00\x01~]{0,6}`)
		k := store.Key{
			Namespace: part.Draw(t, "namespace"), Kind: store.KindAudit, ID: part.Draw(t, "id") + "1",
			Sub: part.Draw(t, "subject"),
		}
		p := RecordKey(k)
		if got, ok := AuditKey(p.PK, p.SK); !ok || got != k {
			t.Fatalf("%s is read as %s", k, got)
		}
		k.Kind = rapid.SampledFrom(
			[]store.Kind{store.KindEntity, store.KindSystem, store.KindSecret, store.KindRevision, "other"},
		).Draw(t, "kind")
		p = RecordKey(k)
		if got, ok := AuditKey(p.PK, p.SK); ok {
			t.Fatalf("%s is read as %s", k, got)
		}
	})
}
