// Package reload keeps values read from files up to date while they are in use.
//
// Nothing runs in the background: a reader of the value checks, at most once a second, whether the files have
// changed. If a change cannot be loaded, the value stays as it was.
package reload

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// Every is how often the files are checked while the value is in use.
const Every = time.Second

// Value is the value loaded last. It is safe for concurrent use.
type Value[T any] struct {
	load   func() (T, error)
	failed func(error)
	paths  []string
	opened time.Time

	current atomic.Pointer[T]
	looked  atomic.Int64 // when the last check began, since opened

	looking chan struct{} // holds an element while a caller checks the files, which guards the following
	seen    []fs.FileInfo
	last    string // error text; while set, each check tries again
}

// Open returns a value loaded with load, which reads the files of paths, or load's error. If load fails later, after
// a file has changed, failed is called once with the error.
func Open[T any](load func() (T, error), failed func(error), paths ...string) (*Value[T], error) {
	v := &Value[T]{load: load, failed: failed, paths: paths, opened: time.Now(), looking: make(chan struct{}, 1)}
	v.seen = v.stat()
	first, err := load()
	if err != nil {
		return nil, err
	}
	v.current.Store(&first)
	return v, nil
}

// Get returns the value. If nobody has checked the files for 2 [Every] and another caller is checking them, Get waits
// for that: at most patience, so that files that cannot be read delay no more than that.
func (v *Value[T]) Get() T {
	now := time.Since(v.opened)
	if age := v.age(now); age >= Every && v.begin(now, age) {
		v.check(now)
	}
	return *v.current.Load()
}

// age returns how long ago the last check began.
func (v *Value[T]) age(now time.Duration) time.Duration { return now - time.Duration(v.looked.Load()) }

// patience is how long a caller waits for another's check.
const patience = 100 * time.Millisecond

// begin waits for this caller's turn to check the files. It returns false if there is none.
func (v *Value[T]) begin(now, age time.Duration) bool {
	select {
	case v.looking <- struct{}{}:
		return true
	default:
	}
	if age < 2*Every {
		return false
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case v.looking <- struct{}{}:
		return true
	case <-late.C:
		v.looked.Store(int64(now)) // so that others do not wait, either
		return false
	}
}

// check checks the files, unless another caller has done so meanwhile.
func (v *Value[T]) check(now time.Duration) {
	defer func() { <-v.looking }()
	if v.age(now) >= Every {
		v.look()
		v.looked.Store(int64(now))
	}
}

func (v *Value[T]) look() {
	seen := v.stat() // before the files are read, so that a concurrent change is noticed next time
	if v.last == "" && same(v.seen, seen) {
		return
	}
	v.seen = seen
	next, err := v.load()
	if err == nil {
		v.last = ""
		v.current.Store(&next)
		return
	}
	if text := err.Error(); text != v.last {
		v.last = text
		v.failed(err)
	}
}

// stat returns the file infos, nil for a missing file.
func (v *Value[T]) stat() []fs.FileInfo {
	infos := make([]fs.FileInfo, len(v.paths))
	for i, path := range v.paths {
		if info, err := os.Stat(path); err == nil {
			infos[i] = info
		}
	}
	return infos
}

func same(a, b []fs.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil || b[i] == nil,
			!os.SameFile(a[i], b[i]),
			a[i].Size() != b[i].Size(),
			!a[i].ModTime().Equal(b[i].ModTime()),
			a[i].Mode() != b[i].Mode():
			return false
		}
	}
	return true
}
