package redis

import (
	"strings"

	"github.com/weirlimits/weir/store"
)

// keys builds key names: see docs/format/redis.md. All keys that a namespace's buckets need share one hash tag, so that
// a script reaches all of them in a cluster too. The catalog of all namespaces has another.
type keys struct{ prefix string }

// registry is the hash tag of keys that belong to no namespace.
const registry = store.Registry

var escaper = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

func (k keys) base(namespace string) string {
	return k.prefix + ":{" + escaper.Replace(namespace) + "}:"
}

// bucket returns a bucket's key and the length of the part that all buckets of the namespace share.
func (k keys) bucket(b store.Bucket) (key string, base int) {
	head := k.base(b.Namespace)
	return head + "b" + b.Entity + "\x00" + b.Resource, len(head) + 1
}

// credits returns the key of the credits of a balance.
func (k keys) credits(b store.Bucket, limit string) string {
	return k.base(b.Namespace) + "c" + member(member(b.Entity, b.Resource), limit)
}

func (k keys) index(namespace string) string { return k.base(namespace) + "i" }

func (k keys) marker(id string) string { return k.base(registry) + "m:" + id }

func (k keys) format() string { return k.base(registry) + "format" }

func (k keys) epochs() string { return k.base(registry) + "epochs" }

// channel is the pub/sub channel that announces commits.
func (k keys) channel() string { return k.base(registry) + "c" }

// Usage keys of a namespace: the flag that its usage is kept, the ended births, and the starts of its windows.
func (k keys) meter(namespace string) string { return k.base(namespace) + "um" }

func (k keys) left(namespace string) string { return k.base(namespace) + "ul" }

func (k keys) starts(namespace string, w store.Window) string {
	return k.base(namespace) + "ut" + string(w[:1])
}

// Usage keys of the whole store: the namespaces with usage, those where counting has yet to begin, when the last pass
// over all namespaces began, and the current reader.
func (k keys) names() string { return k.base(registry) + "un" }

func (k keys) unbegun() string { return k.base(registry) + "ub" }

func (k keys) passed() string { return k.base(registry) + "us" }

func (k keys) reader() string { return k.base(registry) + "ur" }

// list names the list of one kind of record in a namespace.
func list(namespace string, kind store.Kind) string {
	return escaper.Replace(namespace) + ":" + string(kind)
}

// member is an index entry. No part holds a zero byte, so entries sort by their parts.
func member(first, second string) string { return first + "\x00" + second }
