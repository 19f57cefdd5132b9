package fleet

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Version orders grants: a later epoch is newer, and within an epoch a later seq.
type Version struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Compare orders versions.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Epoch, o.Epoch), cmp.Compare(v.Seq, o.Seq))
}

// Term is what a process knows about who writes a record that many read: the leader, whose writes also renew its lease.
// Leaders write the record on condition that it is still as they read it, so if two believe that they lead, one fails.
// V is the type of the record's version, whose zero value means that there is no record.
type Term[V comparable] struct {
	ID    string // of this process
	Epoch uint64 // under which it writes, while it leads

	own      V // version of its last write
	last     V // version when last read
	changed  time.Time
	patience time.Duration
}

// Read takes in the record's version, and the leader and epoch that it names. It reports whether this process must
// write the next version: it leads, nobody does, or the leader has not written for too long, which is patience and up
// to a beat more, so that not all others try at once.
func (t *Term[V]) Read(version V, leader string, epoch uint64, patience, beat time.Duration) bool {
	var none V
	if version != t.last || t.patience == 0 {
		t.wait(version, patience, beat)
	}
	switch {
	case version == none || leader == "":
		t.Epoch = epoch + 1
	case leader == t.ID:
		t.Epoch = epoch
	case time.Since(t.changed) >= t.patience:
		t.Epoch = epoch + 1
	default:
		return false
	}
	return true
}

// Wrote takes in that this process has written the record.
func (t *Term[V]) Wrote(version V, patience, beat time.Duration) {
	t.own = version
	t.wait(version, patience, beat)
}

// Own returns the version of this process's last write.
func (t *Term[V]) Own() V { return t.own }

func (t *Term[V]) wait(version V, patience, beat time.Duration) {
	t.last, t.changed, t.patience = version, time.Now(), patience+rand.N(beat)
}

// Issue is a grant that was published.
type Issue[G any] struct {
	Version
	Grant G
}

// MaxIssues bounds what is kept for a party that does not confirm any.
const MaxIssues = 8

// Issues are the grants that a party may be following, oldest first.
type Issues[G any] []Issue[G]

// Confirm drops grants that the party no longer follows, since it follows that of version ack.
func (is *Issues[G]) Confirm(ack Version) {
	*is = slices.DeleteFunc(*is, func(i Issue[G]) bool { return i.Compare(ack) < 0 })
}

// Publish adds a grant. If there are too many, it merges the oldest into one that covers both.
func (is *Issues[G]) Publish(v Version, grant G, merge func(older, newer G) G) {
	*is = append(*is, Issue[G]{v, grant})
	if all := *is; len(all) > MaxIssues {
		all[1].Grant = merge(all[0].Grant, all[1].Grant)
		*is = slices.Delete(all, 0, 1)
	}
}
