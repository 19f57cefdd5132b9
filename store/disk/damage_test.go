package disk_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
)

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		want error
		make func(r *rig)
	}{
		"text":       {disk.ErrForeign, func(r *rig) { r.write([]byte("this is not a store, and never was")) }},
		"a byte":     {disk.ErrForeign, func(r *rig) { r.write([]byte("x")) }},
		"zeros":      {disk.ErrForeign, func(r *rig) { r.write(make([]byte, 1<<16)) }},
		"another's":  {disk.ErrForeign, func(r *rig) { r.edit(func(tx *bolt.Tx) error { return tx.DeleteBucket(disk.MetaBucket) }) }},
		"no buckets": {disk.ErrCorrupt, func(r *rig) { r.edit(func(tx *bolt.Tx) error { return tx.DeleteBucket(disk.RecordBucket) }) }},
		"no state": {disk.ErrCorrupt, func(r *rig) {
			r.edit(func(tx *bolt.Tx) error { return tx.Bucket(disk.MetaBucket).Delete([]byte("state")) })
		}},
		"another format":  {disk.ErrForeign, func(r *rig) { r.format("weird store\n\x01") }},
		"newer":           {disk.ErrNewer, func(r *rig) { r.format("weir store\n\xff") }},
		"format 0":        {disk.ErrCorrupt, func(r *rig) { r.format("weir store\n\x00") }},
		"bad record":      {disk.ErrCorrupt, func(r *rig) { r.edit(spoil) }},
		"directory":       {disk.ErrForeign, func(r *rig) { r.must(os.MkdirAll(r.file(), 0o700)) }},
		"in a file":       {fs.ErrInvalid, func(r *rig) { r.dir = filepath.Join(r.dir, "f"); r.write(nil); r.dir = r.file() }},
		"none":            {disk.ErrNotExist, func(r *rig) { r.cfg.MustExist = true }},
		"none, as fs":     {fs.ErrNotExist, func(r *rig) { r.cfg.MustExist = true }},
		"none in the dir": {disk.ErrNotExist, func(r *rig) { r.cfg.MustExist = true; r.must(os.MkdirAll(r.dir, 0o700)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, disk.Ahead)
			tt.make(r)
			if errors.Is(tt.want, fs.ErrInvalid) { // not a directory, for which fs has no error of its own
				if _, err := disk.Open(r.dir, nil); !errors.As(err, new(*store.Error)) {
					t.Fatalf("error %v", err)
				}
				return
			}
			r.fails(tt.want)
			if _, err := os.Stat(r.file()); r.cfg.MustExist && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal("a store was made")
			}
		})
	}
}

func TestBadMode(t *testing.T) {
	t.Parallel()
	r := setup(t, "sometimes")
	if _, err := disk.Open(r.dir, &r.cfg); !errors.As(err, new(*store.Error)) {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(r.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("a directory was made")
	}
}

func TestPermission(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("the superuser may do everything")
	}
	r := setup(t, disk.Ahead)
	r.must(os.Mkdir(r.dir, 0o500))
	r.fails(fs.ErrPermission)
}

// TestSecond checks that a second process gets an error at once, and that the first continues.
func TestSecond(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	s := r.open()
	r.fails(disk.ErrLocked)
	r.allow(s, debit(alice, still("rpm", 10), 1))
	r.close(s)
	r.open()
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// filled leaves a store that contains some of everything.
func (r *rig) filled() {
	r.Helper()
	s := r.open()
	l := still("rpm", 100)
	ds := make([]store.Debit, 400)
	for i := range ds {
		ds[i] = debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint("entity-", i), Resource: "api"}, l, 5)
	}
	r.allow(s, ds...)
	r.must(r.settle(s, "an-id", ds[0]))
	for i := range 50 {
		key := store.Key{Namespace: "n", Kind: store.KindEntity, ID: fmt.Sprint(i)}
		r.must(s.Commit(r.Context(), store.Write{Record: store.Record{Key: key, Value: make([]byte, 100*i)}}))
	}
	r.close(s)
}

// edit changes a filled store's file while it is closed.
func (r *rig) edit(f func(tx *bolt.Tx) error) {
	r.Helper()
	r.filled()
	db, err := bolt.Open(r.file(), 0o600, nil)
	r.must(err)
	r.must(db.Update(f))
	r.must(db.Close())
}

func (r *rig) format(v string) {
	r.Helper()
	r.edit(func(tx *bolt.Tx) error { return tx.Bucket(disk.MetaBucket).Put(disk.FormatKey, []byte(v)) })
}

// spoil flips one bit in a record's counter.
func spoil(tx *bolt.Tx) error {
	b := tx.Bucket(disk.RecordBucket)
	k, v := b.Cursor().First()
	v = append([]byte(nil), v...)
	v[len(v)-6] ^= 4
	return b.Put(append([]byte(nil), k...), v)
}

// TestBranchKey checks that a damaged key in an inner page is noticed although all keys are in order: bbolt would add the page
// below it a second time with the next write.
func TestBranchKey(t *testing.T) {
	t.Parallel()
	r := setup(t, disk.Ahead)
	r.filled()
	raw, err := os.ReadFile(r.file())
	r.must(err)
	order, size, found := binary.NativeEndian, os.Getpagesize(), 0
	db, err := bolt.Open(r.file(), 0o600, &bolt.Options{ReadOnly: true, NoFreelistSync: true, PreLoadFreelist: true})
	r.must(err)
	r.must(db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bolt.Bucket) error {
			if p, err := tx.Page(int(b.Root())); err != nil || p == nil || p.Type != "branch" {
				return err
			}
			damaged := append([]byte(nil), raw...)
			first := damaged[int(b.Root())*size+16:]
			last := &first[order.Uint32(first)+order.Uint32(first[4:])-1] // of the first key
			if *last == 0 {
				return nil
			}
			*last--
			d := setup(t, disk.Ahead)
			d.write(damaged)
			d.fails(disk.ErrCorrupt)
			found++
			return nil
		})
	}))
	r.must(db.Close())
	if found == 0 {
		t.Fatal("the file has no inner page")
	}
}

// TestDamage checks that whatever has happened to the file, Open either opens a usable store or says what is wrong.
func TestDamage(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	r := setup(t, disk.Ahead)
	r.filled()
	whole, err := os.ReadFile(r.file())
	r.must(err)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	opened := 0
	const rounds = 100
	for i := range rounds {
		raw := append([]byte(nil), whole...)
		switch i % 5 {
		case 0: // cut off
			raw = raw[:rng.IntN(len(raw))]
		case 1: // one bit flipped
			raw[rng.IntN(len(raw))] ^= 1 << rng.IntN(8)
		case 2: // the start of a page, which says what the page is
			raw[rng.IntN(len(raw)/4096)*4096+rng.IntN(64)] = byte(rng.Uint32())
		case 3: // a page in an earlier state
			copy(raw[rng.IntN(len(raw)/4096)*4096:], whole[rng.IntN(len(raw)/4096)*4096:][:4096])
		case 4: // a range that was never written
			at := rng.IntN(len(raw))
			clear(raw[at:min(len(raw), at+1+rng.IntN(8192))])
		}
		d := setup(t, disk.Ahead)
		d.write(raw)
		s, err := disk.Open(d.dir, &d.cfg)
		if err != nil {
			if e, ok := errors.AsType[*store.Error](err); !ok || e.Hint == "" || !errors.Is(err, disk.ErrCorrupt) && !errors.Is(err, disk.ErrForeign) {
				t.Fatalf("damage %d: error %v", i, err)
			}
			continue
		}
		opened++
		s.NoSync()
		for j := range 20 {
			d.take(s, debit(store.Bucket{Namespace: "n", Entity: fmt.Sprint("entity-", j*20), Resource: "api"}, still("rpm", 100), 1))
		}
		d.close(s)
		d.close(d.open())
	}
	t.Logf("%d of %d could be opened", opened, rounds)
	if opened == 0 || opened == rounds {
		t.Fatal("the damage is of one kind only")
	}
}
