package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// validate reads the pages of a file before bbolt maps it for writing. bbolt searches for free pages in a goroutine of
// its own, and damage it finds there ends the process. validate holds a shared lock on the file meanwhile.
func validate(file string) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var lock *bolt.DB
	lockErr := guarded(func() (err error) {
		lock, err = bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
		return err
	})
	if errors.Is(lockErr, berrors.ErrTimeout) {
		return lockErr
	}
	v := &pages{f: f, size: info.Size()}
	err = v.choose()
	switch {
	case lockErr != nil && err == nil:
		return fmt.Errorf("%w: %w", ErrCorrupt, lockErr)
	case lockErr != nil:
		return err
	case err == nil:
		err = v.walk()
	}
	return errors.Join(err, lock.Close())
}

// Layout of bbolt's pages, in the machine's byte order.
const (
	headSize = 16 // id, flags, count, overflow
	elemSize = 16
	metaSize = 64
	rootSize = 16 // of a bucket: its root page, a sequence number

	branchFlag = 0x01
	leafFlag   = 0x02

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = 1<<64 - 1
	maxDepth    = 64
)

var order = binary.NativeEndian

// pages walks the pages of a bbolt file.
type pages struct {
	f        *os.File
	size     int64
	pageSize int64
	root     uint64
	freelist uint64
	high     uint64 // pages from this one on are unused
	txid     uint64
	seen     []bool
}

// choose selects the newer of the two meta pages, as bbolt does.
func (v *pages) choose() error {
	head := make([]byte, headSize+metaSize)
	found := false
	for _, at := range []int64{0, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		if n, err := v.f.ReadAt(head, at); n < len(head) {
			if at == 0 && n < 4 {
				return fmt.Errorf("%w: %w", ErrForeign, err)
			}
			break
		}
		m := head[headSize:]
		if order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion {
			continue
		}
		sum := fnv.New64a()
		_, _ = sum.Write(m[:56])
		size := int64(order.Uint32(m[8:]))
		if sum.Sum64() != order.Uint64(m[56:]) || at != 0 && at != size || size < 1<<9 || size&(size-1) != 0 {
			found = true // a meta page, but damaged
			continue
		}
		if txid := order.Uint64(m[48:]); v.pageSize == 0 || txid > v.txid {
			v.pageSize, v.txid = size, txid
			v.root, v.freelist, v.high = order.Uint64(m[16:]), order.Uint64(m[32:]), order.Uint64(m[40:])
		}
	}
	switch {
	case v.pageSize == 0 && found:
		return fmt.Errorf("%w: neither of its first two pages is intact", ErrCorrupt)
	case v.pageSize == 0:
		return ErrForeign
	case v.high < 3 || int64(v.high) > v.size/v.pageSize:
		return fmt.Errorf(
			"%w: it ends after %d bytes, but should hold %d pages of %d bytes", ErrCorrupt, v.size, v.high, v.pageSize,
		)
	}
	return nil
}

// walk visits every page in use.
func (v *pages) walk() error {
	v.seen = make([]bool, v.high)
	v.seen[0], v.seen[1] = true, true
	if v.freelist != noFreelist {
		if _, err := v.read(v.freelist, 0x10); err != nil {
			return err
		}
	}
	return v.page(v.root, nil, nil, 0)
}

// read returns a page and its overflow pages, and fails if another page refers to any of them.
func (v *pages) read(id uint64, flags uint16) ([]byte, error) {
	if id < 2 || id >= v.high {
		return nil, fmt.Errorf("%w: a reference to page %d of %d", ErrCorrupt, id, v.high)
	}
	head := make([]byte, headSize)
	if _, err := v.f.ReadAt(head, int64(id)*v.pageSize); err != nil {
		return nil, err
	}
	over := uint64(order.Uint32(head[12:]))
	if have := order.Uint16(head[8:]); order.Uint64(head) != id || have&flags == 0 || have&^flags != 0 ||
		over >= v.high-id {
		return nil, fmt.Errorf("%w: page %d has a wrong header", ErrCorrupt, id)
	}
	for i := id; i <= id+over; i++ {
		if v.seen[i] {
			return nil, fmt.Errorf("%w: two pages refer to page %d", ErrCorrupt, i)
		}
		v.seen[i] = true
	}
	p := make([]byte, int64(over+1)*v.pageSize)
	_, err := v.f.ReadAt(p, int64(id)*v.pageSize)
	return p, err
}

// page visits a page and the pages below it. Its keys must begin with low and end before high, where nil means no
// bound.
func (v *pages) page(id uint64, low, high []byte, depth int) error {
	p, err := v.read(id, branchFlag|leafFlag)
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%w: page %d is nested too deep", ErrCorrupt, id)
	}
	return v.entries(p, id, low, high, depth)
}

func (v *pages) entries(p []byte, id uint64, low, high []byte, depth int) error {
	bad := fmt.Errorf("%w: page %d has entries out of order", ErrCorrupt, id)
	flags, count := order.Uint16(p[8:]), int(order.Uint16(p[10:]))
	if headSize+count*elemSize > len(p) || flags == branchFlag && count == 0 {
		return bad
	}
	last := low
	for i := range count {
		at := headSize + i*elemSize
		e := p[at:]
		var key, value []byte
		var child uint64
		var bucket, ok bool
		if flags == branchFlag {
			key, ok = cut(p, at+int(order.Uint32(e)), int(order.Uint32(e[4:])))
			child = order.Uint64(e[8:])
		} else {
			pos := at + int(order.Uint32(e[4:]))
			key, ok = cut(p, pos, int(order.Uint32(e[8:])))
			if ok {
				value, ok = cut(p, pos+len(key), int(order.Uint32(e[12:])))
			}
			bucket = order.Uint32(e) != 0
		}
		// The first key is the one that the page above has for this page: by that, bbolt finds its entry there.
		if cmp := bytes.Compare(key, last); !ok || len(key) == 0 && flags == leafFlag || cmp < 0 || cmp == 0 && i > 0 ||
			cmp > 0 && i == 0 && low != nil || high != nil && bytes.Compare(key, high) >= 0 {
			return bad
		}
		last = key
		var err error
		switch {
		case flags == branchFlag:
			next := high
			if i+1 < count {
				n := p[at+elemSize:]
				if next, ok = cut(p, at+elemSize+int(order.Uint32(n)), int(order.Uint32(n[4:]))); !ok {
					return bad
				}
			}
			err = v.page(child, key, next, depth+1)
		case bucket:
			err = v.bucket(value, id, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket visits a bucket. A small bucket is stored inline, within its value.
func (v *pages) bucket(value []byte, id uint64, depth int) error {
	if len(value) < rootSize {
		return fmt.Errorf("%w: page %d has an incomplete bucket", ErrCorrupt, id)
	}
	if root := order.Uint64(value); root != 0 {
		return v.page(root, nil, nil, depth)
	}
	inline := value[rootSize:]
	if len(inline) < headSize || order.Uint16(inline[8:]) != leafFlag {
		return fmt.Errorf("%w: page %d has an incomplete bucket", ErrCorrupt, id)
	}
	return v.entries(inline, id, nil, nil, depth)
}

func cut(p []byte, at, n int) ([]byte, bool) {
	if at < 0 || n < 0 || at > len(p) || n > len(p)-at {
		return nil, false
	}
	return p[at : at+n : at+n], true
}
