package dynamodb

import (
	"slices"
	"sync"
	"time"
)

// maxMoves is how often a take is sent on from shards that are throttled or not there, before it waits for the one that it
// is on.
const maxMoves = 8

// maxHeats is how many throttled shards of a bucket that is known to be split it leaves. The third counts as throttled three
// times, and is split once a write comes through.
const maxHeats = 2

// likely returns the shards on which a take may be placed: those that may be written to, and those that are likely to be
// there, as another was seen to be split so deep. A write that finds no item there makes none: it asserts how deep the item
// is split.
func (m *memory) likely() []*shard {
	all := m.all()
	if len(all) == 1 {
		return all
	}
	list := make([]*shard, 0, len(all))
	for _, sh := range all {
		if sh.usable(all) || sh.unknown() && all[parentOf(sh.k)].unknown() && int(m.deep.Load()) >= born(sh.k).n {
			list = append(list, sh)
		}
	}
	return list
}

// unknown reports whether nothing was seen of the shard.
func (sh *shard) unknown() bool {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.seen == nil
}

// candidates returns the shards on which the leg may be placed. A forced debit waits for its shard, so that has to be there.
func (l *leg) candidates() []*shard {
	for i := range l.debit.Charges {
		if l.debit.Charges[i].Force {
			return l.m.usable()
		}
	}
	return l.m.likely()
}

// on returns the leg's one job on a shard. It is sent on from there while there are others to go to.
func (l *leg) on(sh *shard) placed {
	j, split := l.job(), len(l.m.all()) > 1
	j.roams = j.forced == nil && l.moves < maxMoves && (split && l.heats < maxHeats || !split && l.next() > 0)
	return placed{sh: sh, j: j, hoped: split && l.roomiest(sh) >= 0}
}

// next returns the first of the generation of shards that comes next while shards are sought: 1, 2 and 3, 4 to 7 and so
// on. 0: there is none, or it was not there just now.
func (l *leg) next() int {
	k := max(1, 2*l.sought)
	if k >= l.m.s.cfg.MaxShards || l.m.ended(k) {
		return 0
	}
	return k
}

// another returns where the leg goes on from a shard. Of a bucket that is not known to be split, shard 0 is throttled:
// others may have split it. So shards are sought, in each generation one at random, until one answers. Throttled calls cost
// nothing, and where the bucket is not split so deep, the first that is not there says so.
func (l *leg) another(from *shard) *shard {
	m := l.m
	l.moves++
	if shards := l.candidates(); len(shards) > 1 {
		if !from.expected() {
			l.heats++
		}
		return l.pick(slices.DeleteFunc(shards, func(sh *shard) bool { return sh == from }))
	}
	if k := l.next(); k > 0 {
		l.sought = k
		return m.scout(k + m.s.dice(k))
	}
	l.moves = maxMoves
	return m.scout(m.s.dice(max(1, l.sought)))
}

// warm has so many throttled writes count that were others'.
func (sh *shard) warm(denied int) {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	sh.meter.denied = max(sh.meter.denied, denied)
}

// divert sends takes on whose write was throttled for its key. The lane must be locked.
func (sh *shard) divert(b *batch, err error) {
	if forKey(err) {
		b.jobs = slices.DeleteFunc(b.jobs, sh.sendAway)
		sh.lane.Drop(sh.sendAway)
	}
}

// sendAway sends a take on that this shard cannot decide for now, if it may go, and reports whether it did.
func (sh *shard) sendAway(j *job) bool {
	if j.roams {
		j.away = true
		sh.answer(j, nil)
	}
	return j.roams
}

// scout returns shard k, of which nothing may be known.
func (m *memory) scout(k int) *shard {
	m.growing.Lock()
	defer m.growing.Unlock()
	if all := m.all(); k < len(all) {
		return all[k]
	}
	if m.scouts == nil {
		m.scouts = make(map[int]*shard)
	}
	if m.scouts[k] == nil {
		m.scouts[k] = m.s.newShard(m, k)
	}
	return m.scouts[k]
}

// ends notes that shard k is not there.
func (m *memory) ends(k int) {
	m.flat.Store(int32(born(k).n / 2))
	m.flatAt.Store(m.s.now())
}

// ended reports whether, just now, a shard was not there of the generation that begins with k, or of one before it.
func (m *memory) ended(k int) bool {
	flat := int(m.flat.Load())
	if flat == 0 || k < flat {
		return false
	}
	age := m.s.now() - m.flatAt.Load()
	return age >= 0 && age < int64(m.s.cfg.CallTimeout)
}

// doubts counts how often a bucket's shards refused what by their last sight they had room for, less how often they did
// not: how far what is remembered of them can be relied on.
type doubts struct {
	mu sync.Mutex
	n  int
	at time.Time // when one last refused so
}

const (
	mostDoubts = 8
	manyDoubts = 4
)

// judge learns from the answer to a take. What it was refused for the process's own debits makes no doubt: nobody else had
// written by then.
func (m *memory) judge(p *placed) {
	if !p.hoped || p.lost || p.j.told || p.j.away || p.j.err != nil || p.j.item == nil || !p.j.item.exists {
		return
	}
	doubtful := !p.j.allowed && p.sh.shared()
	d := &m.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case p.j.allowed:
		d.n = max(0, d.n-1)
	case doubtful:
		d.n, d.at = min(d.n+1, mostDoubts), m.s.clock()
	}
}

// short reports whether others take all that the bucket has, on whatever shard: it refused just now where it seemed to have
// room, as it did more often than not. Then another shard is as likely to refuse as the first.
func (m *memory) short() bool {
	if m.s.cfg.Guard < 0 {
		return false
	}
	d := &m.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n >= manyDoubts && m.s.clock().Sub(d.at) < m.s.cfg.RejectionTTL
}
