package inmem

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/internal/ledger"
)

const (
	// bookAtOnce is the largest number of readings in one transaction.
	bookAtOnce = 5000
	// sortAtOnce is how many readings are sorted before they are booked: a transaction on disk writes each page that it
	// changes as a whole.
	sortAtOnce = 100_000
	// pruneAtOnce is how many windows or accounts one transaction removes.
	pruneAtOnce = 10_000
	// slack is how far a bucket's time may lie before the moment of its change. A bucket that exceeds it is read when
	// it changes again or goes.
	slack = int64(2 * time.Second)
)

// Usage books what the buckets of a table count. Apart from those of its meter, no two of its methods may run at the
// same time.
type Usage struct {
	Meter

	Table     *Table
	Parent    ledger.Parent
	Retention store.Retention
	Update    func(func(ledger.Tx) error) error // makes changes to the books in one transaction
	// Fit returns the readings for which there is room. Defaults to all.
	Fit func([]ledger.Observation) []ledger.Observation
	// Since is the time from which buckets that have changed are read.
	Since int64

	pending []ledger.Observation
	expired int64 // the hour of the last search for expired windows
}

// Add queues readings. If they are many, it tries to book them.
func (u *Usage) Add(readings ...ledger.Observation) error {
	u.pending = append(u.pending, readings...)
	if len(u.pending) < sortAtOnce {
		return nil
	}
	return u.book()
}

// TakeIn books the queued readings and, if buckets is set, those of all buckets that have changed since it last did.
// After an error, they stay queued.
func (u *Usage) TakeIn(buckets bool) error {
	u.pending = append(u.pending, u.Drain()...)
	if err := u.book(); err != nil || !buckets {
		return err
	}
	until := u.Table.Now() - slack
	err := u.Table.Read(u.Since, func(readings []ledger.Observation) error { return u.Add(readings...) })
	if err == nil {
		err = u.book()
	}
	if err == nil {
		u.Since = until
	}
	return err
}

// book books the pending readings. They stay pending if it fails.
func (u *Usage) book() error {
	if len(u.pending) > bookAtOnce { // stable: the readings of one bucket keep their order
		slices.SortStableFunc(u.pending, func(a, b ledger.Observation) int { return a.Bucket.Compare(b.Bucket) })
	}
	for len(u.pending) > 0 {
		n := min(len(u.pending), bookAtOnce)
		if err := u.apply(u.pending[:n]); err != nil {
			return err
		}
		u.pending = u.pending[n:]
	}
	u.pending = nil
	return nil
}

func (u *Usage) apply(readings []ledger.Observation) error {
	if u.Fit != nil {
		readings = u.Fit(readings)
	}
	return u.Update(func(tx ledger.Tx) error { return ledger.Apply(tx, readings, u.Parent) })
}

// Count books readings of processes.
func (u *Usage) Count(readings []store.Reading) error {
	obs, err := ledger.Observations(readings)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(obs, bookAtOnce) {
		if err := u.apply(part); err != nil {
			return err
		}
	}
	return nil
}

// Expire removes, once an hour, windows past their retention, the accounts of processes that are gone and, with ended
// set, the accounts of buckets that are gone.
func (u *Usage) Expire(ended bool) error {
	now := clock.Time(u.Table.Now())
	hour := ledger.MinuteOf(now) / 60
	if hour == u.expired {
		return nil
	}
	err := u.all(func(tx ledger.Tx) (bool, error) { return ledger.Expire(tx, u.Retention, now, ended, pruneAtOnce) })
	if err == nil {
		u.expired = hour
	}
	return err
}

// Forget removes the windows of a namespace.
func (u *Usage) Forget(namespace string) error {
	return u.all(func(tx ledger.Tx) (bool, error) { return ledger.Forget(tx, namespace, pruneAtOnce) })
}

// all repeats a change, each time in a transaction of its own, until there is nothing more to do.
func (u *Usage) all(f func(ledger.Tx) (more bool, err error)) error {
	for more := true; more; {
		err := u.Update(func(tx ledger.Tx) (err error) {
			more, err = f(tx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
