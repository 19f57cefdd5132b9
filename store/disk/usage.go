package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/inmem"
	"github.com/weirlimits/weir/store/internal/ledger"
)

// UsageFile is the name of the usage file within a store's directory. Usage has its own file so that writing it delays
// no decision, and losing it affects no limit.
const UsageFile = "usage.db"

// DefaultUsageInterval is the default of [Config.UsageInterval].
const DefaultUsageInterval = time.Minute

var (
	usageBucket = []byte("usage")
	usageFormat = []byte("format")
)

const usageMagic = "weir usage 1\n"

// meter keeps usage in its file. It takes in readings of the buckets' counters at an interval, at a query,
// before a bucket's record is deleted, and at Close.
type meter struct {
	inmem.Usage

	file     string
	interval time.Duration
	noSync   bool

	mu     sync.Mutex
	db     *bolt.DB // nil until there is something to write or read
	closed bool

	stop    chan struct{}
	stopped chan struct{}
}

func newMeter(dir string, cfg *Config) *meter {
	l := &meter{
		file: filepath.Join(dir, UsageFile), interval: cfg.UsageInterval,
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	l.Retention, l.Update = cfg.Retention, l.update
	return l
}

// share limits taking readings in to 1/share of a processor: if so many buckets change that it would use more, it runs
// less often.
const share = 30

// run takes readings in at multiples of the interval, so that full hours coincide with one of them.
func (l *meter) run() {
	defer close(l.stopped)
	var took time.Duration
	for {
		now := time.Now()
		t := time.NewTimer(max(now.Truncate(l.interval).Add(l.interval).Sub(now), share*took))
		select {
		case began := <-t.C:
			l.mu.Lock()
			_ = l.takeIn() // what could not be written is kept and retried
			l.mu.Unlock()
			took = time.Since(began)
		case <-l.stop:
			t.Stop()
			return
		}
	}
}

// load takes in a bucket's state from the file.
func (l *meter) load(st *store.State) {
	_ = l.Add(ledger.Observation{Bucket: st.Bucket, Reading: ledger.ReadingOf(st)}) // retried later
}

// settle makes pending readings durable, before the bucket records that also hold their counts are deleted.
func (l *meter) settle() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.TakeIn(false)
}

// close takes everything in if the store was changed.
func (l *meter) close(touched bool) error {
	close(l.stop)
	<-l.stopped
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var err error
	if touched {
		l.Since -= int64(time.Minute)
		err = l.takeIn()
	}
	if l.db != nil {
		err = errors.Join(err, guarded(l.db.Close))
		l.db = nil
	}
	return err
}

// takeIn books the readings of all changed buckets. The meter is locked.
func (l *meter) takeIn() error {
	if err := l.TakeIn(true); err != nil || l.db == nil {
		return err
	}
	return l.Expire(false)
}

// update runs f in a transaction on the file, which it creates if necessary.
func (l *meter) update(f func(ledger.Tx) error) error {
	err := l.open()
	if err == nil {
		err = guarded(func() error {
			return l.db.Update(func(tx *bolt.Tx) error {
				b := tx.Bucket(usageBucket)
				if b == nil { // a new file
					var err error
					if b, err = tx.CreateBucket(usageBucket); err != nil {
						return err
					}
					if err := b.Put(usageFormat, []byte(usageMagic)); err != nil {
						return err
					}
				}
				return f(boltTx{b})
			})
		})
	}
	return l.trouble("usage", err)
}

// open opens or creates the file. The meter is locked.
func (l *meter) open() error {
	if l.db != nil {
		return nil
	}
	_, missing := os.Stat(l.file)
	return guarded(func() error {
		db, err := bolt.Open(l.file, 0o600, &bolt.Options{
			Timeout: lockTimeout, FreelistType: bolt.FreelistMapType, NoStatistics: true, NoSync: l.noSync,
		})
		if err != nil {
			return err
		}
		if err := db.View(checkUsage); err != nil {
			return errors.Join(err, db.Close())
		}
		l.db = db
		if missing != nil && !l.noSync {
			return syncDir(filepath.Dir(l.file))
		}
		return nil
	})
}

// checkUsage returns an error if the file is not a usage file of this format.
func checkUsage(tx *bolt.Tx) error {
	b := tx.Bucket(usageBucket)
	if b == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return ErrForeign
		}
		return nil
	}
	if v := b.Get(usageFormat); string(v) != usageMagic {
		return fmt.Errorf("%w: format %q", ErrNewer, v)
	}
	return nil
}

// view calls f with all usage until now or, if known is set, with what has been taken in so far.
func (l *meter) view(known bool, f func(ledger.Tx) error) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return store.ErrClosed
	}
	var err error
	if !known {
		err = l.takeIn()
	}
	if err == nil && l.db == nil {
		if _, missing := os.Stat(l.file); errors.Is(missing, fs.ErrNotExist) { // reading creates no file
			l.mu.Unlock()
			return f(new(ledger.Mem))
		}
		err = l.open()
	}
	var tx *bolt.Tx
	if err == nil {
		err = guarded(func() (err error) { tx, err = l.db.Begin(false); return err })
	}
	l.mu.Unlock()
	if err != nil {
		return l.trouble("usage", err)
	}
	err = guarded(func() error {
		if b := tx.Bucket(usageBucket); b != nil {
			return f(boltTx{b})
		}
		return f(new(ledger.Mem))
	})
	return l.trouble("usage", errors.Join(err, tx.Rollback()))
}

func (l *meter) trouble(op string, err error) error {
	var already *store.Error
	if err == nil || errors.Is(err, store.ErrBadCursor) || errors.Is(err, store.ErrClosed) || errors.As(err, &already) {
		return err
	}
	return &store.Error{
		Op: op, Key: l.file, Err: err,
		Hint: "limits do not depend on this file; if it is damaged, move it away to start over",
	}
}
