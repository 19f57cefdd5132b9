package table

import (
	"hash/fnv"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// The names of the table's keys and indexes. All keys are formatted in this file.
const (
	AttrPK     = "PK"
	AttrSK     = "SK"
	AttrIndex  = "GP" // hash key of indexAll
	AttrSort   = "GS" // range key of indexAll
	AttrParent = "PP" // hash key of indexParent, only on records with a parent
	AttrChild  = "PC" // range key of indexParent
	AttrScope  = "RP" // hash key of indexScope, only on entities' own limits
	AttrOwner  = "RO" // range key of indexScope
	AttrTTL    = "ttl"

	IndexAll    = "all"    // every record and bucket of a namespace
	IndexParent = "parent" // records by parent
	IndexScope  = "scope"  // entities with limits of their own by resource

	// partitions is the number of hash keys of indexAll that a namespace's records are spread over.
	partitions = 16

	// DynamoDB's limits on the length of keys, in bytes.
	MaxHash  = 2048
	MaxRange = 1024
)

// A hash key escapes its parts. A range key keeps their order: NUL separates the parts, and a NUL within a part is
// replaced by a sequence that sorts alike.
var (
	escaper   = strings.NewReplacer("%", "%25", "#", "%23", "/", "%2F")
	unescaper = strings.NewReplacer("%23", "#", "%2F", "/", "%25", "%")
	orderer   = strings.NewReplacer("\x00", "\x01\x01", "\x01", "\x01\x02")
	disorder  = strings.NewReplacer("\x01\x01", "\x00", "\x01\x02", "\x01")
)

// Key is an item's primary key.
type Key struct{ PK, SK string }

// String returns the key for messages.
func (p Key) String() string { return strconv.Quote(p.PK) + " " + strconv.Quote(p.SK) }

// Item returns a new item that has the key's attributes and no other.
func (p Key) Item() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{AttrPK: Str(p.PK), AttrSK: Str(p.SK)}
}

// BucketKey is the primary key of a bucket's shard.
func BucketKey(b store.Bucket, shard int) Key {
	return Key{
		escaper.Replace(b.Namespace) + "/BUCKET#" + escaper.Replace(b.Entity) + "#" + escaper.Replace(b.Resource) +
			"#" + strconv.Itoa(shard),
		"#STATE",
	}
}

// CheckBucket returns an error if a bucket's key is longer than DynamoDB allows. The product's IDs always fit, apart
// from an id of a namespace that was chosen by hand.
func CheckBucket(b store.Bucket) error {
	if n := len(BucketKey(b, 10).PK); n > MaxHash {
		return &store.BoundError{Bound: "bytes in the hash key of a bucket", Max: MaxHash, Have: n}
	}
	return nil
}

// ParseBucketKey is the inverse of BucketKey.
func ParseBucketKey(pk string) (b store.Bucket, shard int, ok bool) {
	ns, rest, ok := strings.Cut(pk, "/BUCKET#")
	parts := strings.Split(rest, "#")
	if !ok || len(parts) != 3 {
		return b, 0, false
	}
	shard, err := strconv.Atoi(parts[2])
	return store.Bucket{
		Namespace: unescaper.Replace(ns), Entity: unescaper.Replace(parts[0]), Resource: unescaper.Replace(parts[1]),
	}, shard, err == nil
}

// layouts defines the primary keys of the kinds whose records share a hash key per ID. The hash key consists of the
// noun and the ID, the range key of the word and Sub.
var layouts = map[store.Kind]struct{ noun, word string }{
	store.KindEntity:         {"ENTITY", "#META"},
	store.KindEntityLimits:   {"ENTITY", "#CONFIG"},
	store.KindResourceLimits: {"RESOURCE", "#CONFIG"},
	store.KindManifest:       {"MANIFEST", "#META"},
	store.KindRevision:       {"MANIFEST", "#REVISION"},
	store.KindRevisionText:   {"MANIFEST", "#TEXT"},
}

// systemWords start the range keys of the kinds whose records share one hash key in a namespace.
var systemWords = map[store.Kind]string{
	store.KindSystem:      "#CONFIG",
	store.KindNamespace:   "#NAMESPACE",
	store.KindNamespaceID: "#NSID",
	store.KindSecret:      "#SECRET",
	store.KindAuditHead:   "#AUDIT",
}

const auditWord = "#AUDIT"

// systemWord returns the system word of a kind, including kinds not listed above.
func systemWord(kind store.Kind) string {
	if word, ok := systemWords[kind]; ok {
		return word
	}
	return "#KIND#" + escaper.Replace(string(kind))
}

// RecordKey is the primary key of a record. Records of one kind and hash key are ordered by ID, then Sub.
func RecordKey(k store.Key) Key {
	ns, sub := escaper.Replace(k.Namespace), orderer.Replace(k.Sub)
	if l, ok := layouts[k.Kind]; ok {
		return Key{ns + "/" + l.noun + "#" + escaper.Replace(k.ID), l.word + optional(sub)}
	}
	rest := orderer.Replace(k.ID)
	if k.Kind == store.KindAudit {
		return Key{ns + "/AUDIT#" + escaper.Replace(k.Sub), auditWord + optional(rest)}
	}
	if sub != "" {
		rest += "\x00" + sub
	}
	return Key{ns + "/SYSTEM#", systemWord(k.Kind) + optional(rest)}
}

func optional(part string) string {
	if part == "" {
		return ""
	}
	return "#" + part
}

func epochKey(namespace string) Key {
	return Key{escaper.Replace(namespace) + "/SYSTEM#", "#EPOCH"}
}

// VersionKey is the primary key of the table's schema version.
func VersionKey() Key { return Key{store.Registry + "/SYSTEM#", "#VERSION"} }

// MarkerKey is the primary key of the marker of a settle's ID.
func MarkerKey(id string) Key {
	return Key{store.Registry + "/LEASE#" + escaper.Replace(id), "#RETURNED"}
}

// AuditKey returns the key of an audit event, given the keys of its item, for instance in a record of the table's
// stream. ok is false for any other item.
func AuditKey(pk, sk string) (k store.Key, ok bool) {
	ns, subject, isAudit := strings.Cut(pk, "/AUDIT#")
	id, isEvent := strings.CutPrefix(sk, auditWord+"#")
	if !isAudit || !isEvent {
		return k, false
	}
	return store.Key{
		Namespace: unescaper.Replace(ns), Kind: store.KindAudit, ID: disorder.Replace(id),
		Sub: unescaper.Replace(subject),
	}, true
}

// ConfigKey returns the key of an entity, limits or a namespace, given the keys of its item, for instance in a record
// of the table's stream. ok is false for any other item.
func ConfigKey(pk, sk string) (k store.Key, ok bool) {
	ns, rest, ok := strings.Cut(pk, "/")
	noun, id, is := strings.Cut(rest, "#")
	if !ok || !is {
		return k, false
	}
	k.Namespace, k.ID = unescaper.Replace(ns), unescaper.Replace(id)
	for kind, l := range layouts {
		if l.noun != noun || kind != store.KindEntity && kind != store.KindEntityLimits &&
			kind != store.KindResourceLimits {
			continue
		}
		if sub, of := strings.CutPrefix(sk, l.word); of && (sub == "" || sub[0] == '#') {
			k.Kind, k.Sub = kind, disorder.Replace(strings.TrimPrefix(sub, "#"))
			return k, true
		}
	}
	if noun != "SYSTEM" || id != "" {
		return k, false
	}
	for _, kind := range []store.Kind{
		store.KindSystem, store.KindPlanLimits, store.KindNamespace, store.KindNamespaceID,
	} {
		if rest, of := strings.CutPrefix(sk, systemWord(kind)); of && (rest == "" || rest[0] == '#') {
			id, sub, _ := strings.Cut(strings.TrimPrefix(rest, "#"), "\x00")
			k.Kind, k.ID, k.Sub = kind, disorder.Replace(id), disorder.Replace(sub)
			return k, true
		}
	}
	return k, false
}

// IndexPartition is the hash key of indexAll under which a record or bucket is listed.
func IndexPartition(namespace, spread string) string {
	h := fnv.New32a()
	h.Write([]byte(spread))
	return partitionName(namespace, int(h.Sum32()%partitions))
}

func partitionName(namespace string, n int) string {
	return escaper.Replace(namespace) + "/IDX#" + strconv.Itoa(n)
}

// SortKey is a range key of an index. It sorts by its parts, in order.
func SortKey(kind, id, sub string) string {
	return kind + "\x00" + orderer.Replace(id) + "\x00" + orderer.Replace(sub)
}

// parseSort is the inverse of SortKey.
func parseSort(s string) (kind, id, sub string, ok bool) {
	parts := strings.Split(s, "\x00")
	if len(parts) != 3 {
		return "", "", "", false
	}
	return parts[0], disorder.Replace(parts[1]), disorder.Replace(parts[2]), true
}

func recordSort(k store.Key) string { return SortKey(string(k.Kind), k.ID, k.Sub) }

// BucketSort is the range key of a bucket in the index of everything.
func BucketSort(b store.Bucket) string { return SortKey("bucket", b.Entity, b.Resource) }

func parentPartition(namespace, parent string) string {
	return escaper.Replace(namespace) + "/PARENT#" + escaper.Replace(parent)
}

func scopePartition(namespace, resource string) string {
	return escaper.Replace(namespace) + "/SCOPE#" + escaper.Replace(resource)
}

// checkKey refuses keys that DynamoDB cannot store unchanged. The product's IDs, of at most 256 bytes, always fit.
func checkKey(op string, k store.Key, parent string) error {
	bad := func(format string, args ...any) error {
		return &store.Error{Op: op, Key: k.String(), Err: Invalid(format, args...), Hint: "use another id"}
	}
	for _, part := range []string{k.Namespace, string(k.Kind), k.ID, k.Sub, parent} {
		if !utf8.ValidString(part) {
			return bad("%q is not valid UTF-8", part)
		}
	}
	p := RecordKey(k)
	n := max(len(p.PK), len(parentPartition(k.Namespace, parent)), len(scopePartition(k.Namespace, k.Sub)))
	if n > MaxHash {
		return bad("the hash key has %d bytes; DynamoDB allows %d", n, MaxHash)
	}
	if n := max(len(p.SK), len(recordSort(k))); n > MaxRange {
		return bad("the range key has %d bytes; DynamoDB allows %d", n, MaxRange)
	}
	if strings.ContainsRune(string(k.Kind), 0) {
		return bad("the kind contains NUL")
	}
	return nil
}

// UsageParts is the number of hash keys that windows of the same kind are spread over.
const UsageParts = 8

// PartOf returns the part in which an entity's windows lie.
func PartOf(entity string) int {
	h := fnv.New32a()
	h.Write([]byte(entity))
	return int(h.Sum32() % UsageParts)
}

// AccountKey is the primary key of the account of a source of usage: a shard of a bucket, or a process.
func AccountKey(b store.Bucket, source string) Key {
	return Key{
		escaper.Replace(b.Namespace) + "/ACCOUNT#" + escaper.Replace(b.Entity) + "#" + escaper.Replace(b.Resource) +
			"#" + escaper.Replace(source),
		"#ACCOUNT",
	}
}

// TallyKey is the primary key of a process's counts in a namespace.
func TallyKey(namespace, source string, n int) Key {
	return Key{escaper.Replace(namespace) + "/TALLY#" + escaper.Replace(source) + "#" + strconv.Itoa(n), SortTally}
}

// SortTally is the range key of a process's counts.
const SortTally = "#COUNTS"

// ParseTallyKey is the inverse of TallyKey.
func ParseTallyKey(pk string) (namespace, source string, ok bool) {
	ns, rest, ok := strings.Cut(pk, "/TALLY#")
	source, _, ok2 := strings.Cut(rest, "#")
	return unescaper.Replace(ns), unescaper.Replace(source), ok && ok2
}

// UsagePartition is a hash key of windows of one kind.
func UsagePartition(namespace string, w store.Window, of store.UsageOf, part int) string {
	return escaper.Replace(namespace) + "/USAGE#" + string(w[:1]) + string(rune(of)) + "#" + strconv.Itoa(part)
}

// UsageSort is the range key of a window: its start, then its subject.
func UsageSort(w store.Window, start time.Time, id, sub string) string {
	return SortKey(spellStart(w, start), id, sub)
}

// startLayouts are the layouts of windows' starts, which sort by time.
var startLayouts = map[store.Window]string{store.Hourly: "2006010215", store.Daily: "20060102", store.Monthly: "200601"}

func spellStart(w store.Window, t time.Time) string { return t.UTC().Format(startLayouts[w]) }

// parseUsageSort is the inverse of UsageSort.
func parseUsageSort(w store.Window, at string) (store.UsageRecord, bool) {
	start, id, sub, ok := parseSort(at)
	t, err := time.Parse(startLayouts[w], start)
	return store.UsageRecord{ID: id, Sub: sub, Window: w, Start: t}, ok && err == nil
}

// MeteredKey is the primary key of the time from which usage is kept.
func MeteredKey() Key { return Key{store.Registry + "/SYSTEM#", "#METERED"} }

// streamKey is the primary key of the item that names the reader of a shard of the stream, and how far it has come.
func streamKey(shard string) Key {
	return Key{store.Registry + "/STREAM#", "#SHARD#" + shard}
}
