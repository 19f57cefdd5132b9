package redis

import (
	"encoding/binary"
	"strings"

	"github.com/weirlimits/weir/store"
)

// keys makes the names of keys: see docs/format/redis.md. What a namespace's buckets need lies under one hash tag, so that
// a script reaches all of it in a cluster, too; the catalog of all namespaces lies under another.
type keys struct{ prefix string }

// registry is the hash tag of what belongs to no namespace.
const registry = store.Registry

var escaper = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

func (k keys) base(namespace string) string {
	return k.prefix + ":{" + escaper.Replace(namespace) + "}:"
}

// bucket returns a bucket's key and how much of it is the same for all buckets of the namespace.
func (k keys) bucket(b store.Bucket) (key string, base int) {
	head := k.base(b.Namespace) + "b"
	return head + member(b.Entity, b.Resource), len(head)
}

func (k keys) index(namespace string) string { return k.base(namespace) + "i" }

func (k keys) marker(id string) string { return k.base(registry) + "m:" + id }

func (k keys) format() string { return k.base(registry) + "format" }

func (k keys) epochs() string { return k.base(registry) + "epochs" }

// channel is where commits are told of.
func (k keys) channel() string { return k.base(registry) + "c" }

// What usage needs of a namespace: what says that it is kept, the births that have ended, and the starts of its windows.
func (k keys) meter(namespace string) string { return k.base(namespace) + "um" }

func (k keys) left(namespace string) string { return k.base(namespace) + "ul" }

func (k keys) starts(namespace string, w store.Window) string {
	return k.base(namespace) + "ut" + string(w[:1])
}

// What it needs of the whole store: the namespaces that have some, those in which it has yet to begin, when the last pass
// over all began, and who reads.
func (k keys) names() string { return k.base(registry) + "un" }

func (k keys) unbegun() string { return k.base(registry) + "ub" }

func (k keys) passed() string { return k.base(registry) + "us" }

func (k keys) reader() string { return k.base(registry) + "ur" }

// list names the records of one kind in a namespace.
func list(namespace string, kind store.Kind) string {
	return escaper.Replace(namespace) + ":" + string(kind)
}

// member is what an index orders: no part holds a zero byte.
func member(first, second string) string { return first + "\x00" + second }

// pair appends an int64 as its two words.
func pair(dst []byte, n int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(n)) }

func read64(s string) int64 {
	return int64(uint64(read32(s))<<32 | uint64(read32(s[4:])))
}

func read32(s string) uint32 {
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}

func read16(s string) int { return int(s[0])<<8 | int(s[1]) }
