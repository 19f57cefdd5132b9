package main

import (
	"encoding/binary"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/weirlimits/weir/bench/internal/harness"
)

// groupCommit is the minimum that makes the writes of many callers durable in one file: callers queue, and one
// goroutine drains the queue into a transaction while the next callers queue up.
type groupCommit struct {
	db   *bbolt.DB
	wake chan struct{}
	done chan struct{}

	mu     sync.Mutex
	queue  []*update
	closed bool
}

// update reads, changes and writes a value of 40 bytes under a key of 16 bytes, about the size of a bucket.
type update struct {
	key  [16]byte
	done chan error
}

var bucketName = []byte("buckets")

func openGroupCommit(dir string) (*groupCommit, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bare.db"), 0o600, nil)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucketName)
		return err
	})
	g := &groupCommit{db: db, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go g.commit()
	return g, err
}

// do returns when the update is durable.
func (g *groupCommit) do(u *update) error {
	g.mu.Lock()
	g.queue = append(g.queue, u)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	return <-u.done
}

func (g *groupCommit) commit() {
	defer close(g.done)
	var batch []*update
	for range g.wake {
		g.mu.Lock()
		batch, g.queue = g.queue, batch[:0]
		closed := g.closed
		g.mu.Unlock()
		if len(batch) > 0 {
			err := g.db.Update(func(tx *bbolt.Tx) error { return apply(tx.Bucket(bucketName), batch) })
			for _, u := range batch {
				u.done <- err
			}
		}
		if closed {
			return
		}
	}
}

func apply(b *bbolt.Bucket, batch []*update) error {
	for _, u := range batch {
		value := make([]byte, 40) // bbolt keeps it until the transaction ends
		copy(value, b.Get(u.key[:]))
		binary.BigEndian.PutUint64(value, binary.BigEndian.Uint64(value)+1)
		if err := b.Put(u.key[:], value); err != nil {
			return err
		}
	}
	return nil
}

func (g *groupCommit) close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	<-g.done
	return g.db.Close()
}

// bareBolt has callers update the values of a population's keys.
func bareBolt(population func() *harness.Keys) func(*harness.Env) (harness.Work, error) {
	return func(e *harness.Env) (harness.Work, error) {
		g, err := openGroupCommit(e.Dir)
		if err != nil {
			return nil, err
		}
		e.Defer(g.close)
		ks := population()
		var updates [callers]*update
		for i := range updates {
			updates[i] = &update{done: make(chan error, 1)}
		}
		return func(worker, n int) (int, error) {
			u := updates[worker]
			for range n {
				binary.BigEndian.PutUint64(u.key[8:], uint64(ks.Next(worker)))
				if err := g.do(u); err != nil {
					return 0, err
				}
			}
			return n, nil
		}, nil
	}
}
