package disk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestSoundFiles checks that no file that bbolt wrote is taken for a damaged one, whatever was put and deleted.
func TestSoundFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sound.db")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	name := []byte("records")
	for round := range 40 {
		db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: round%2 == 0, FreelistType: bolt.FreelistMapType})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			err := db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists(name)
				if err != nil {
					return err
				}
				from := rng.IntN(20_000) // a range, so that whole pages fill up and empty
				for i := range rng.IntN(600) {
					key := fmt.Appendf(nil, "%08d%s", from+i, bytes.Repeat([]byte("k"), (from+i)%90))
					if rng.IntN(3) > 0 == (round%8 < 5) {
						err = b.Put(key, make([]byte, rng.IntN(300)))
					} else {
						err = b.Delete(key)
					}
					if err != nil {
						return err
					}
				}
				if rng.IntN(10) == 0 {
					c := b.Cursor()
					for k, _ := c.First(); k != nil && rng.IntN(500) > 0; k, _ = c.Next() {
						if err := c.Delete(); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := validate(file); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
