package inmem

import (
	"fmt"
	"hash/maphash"
	"testing"

	"pgregory.net/rapid"
)

// TestIndex compares the index with a map over any sequence of births, deaths and sweeps.
func TestIndex(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		x := index{seed: maphash.MakeSeed()}
		want := make(map[string]*Bucket)
		keys := rapid.IntRange(1, 400).Draw(t, "keys")
		for range rapid.IntRange(0, 800).Draw(t, "steps") {
			key := fmt.Sprint("k", rapid.IntRange(0, keys).Draw(t, "key"))
			hash := maphash.String(x.seed, key)
			switch b := want[key]; rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				gone := rapid.IntRange(1, 9).Draw(t, "every")
				x.sweep(func(b *Bucket) bool { return int(b.id)%10 < gone })
				for k, b := range want {
					if int(b.id)%10 < gone {
						delete(want, k)
					}
				}
			case 1, 2, 3:
				if b != nil && !x.remove(hash, b) {
					t.Fatalf("%s was not there to remove", key)
				}
				if b != nil && x.remove(hash, b) {
					t.Fatalf("%s was removed twice", key)
				}
				delete(want, key)
			default:
				if b == nil {
					b = &Bucket{key: key}
					b.id = uint64(len(key)*7 + len(want))
					x.put(hash, b)
					want[key] = b
				}
			}
			if x.len() != len(want) {
				t.Fatalf("%d buckets, want %d", x.len(), len(want))
			}
		}
		seen := 0
		for b := range x.all() {
			if seen++; want[b.key] != b {
				t.Fatalf("%s is not to be there", b.key)
			}
		}
		if seen != len(want) {
			t.Fatalf("%d buckets listed, want %d", seen, len(want))
		}
		for k, b := range want {
			if x.get(maphash.String(x.seed, k), []byte(k)) != b {
				t.Fatalf("%s is not found", k)
			}
		}
	})
}
