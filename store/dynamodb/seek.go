package dynamodb

import (
	"slices"
	"sync"
	"time"
)

// maxMoves is how often a take moves on from shards that are throttled or missing, before it waits for the shard it has
// reached.
const maxMoves = 8

// maxHeats is how many throttled shards a take leaves, if the bucket is known to be split. The third counts as throttled
// three times, and is split once a write succeeds.
const maxHeats = 2

// likely returns the shards on which a take may be placed: those that may be written to, and those that probably exist,
// because another shard was seen to be split that deep. A write that finds no item there creates none, because it asserts
// how deep the item is split.
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

// unknown reports whether the shard was never seen.
func (sh *shard) unknown() bool {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.seen == nil
}

// candidates returns the shards on which the leg may be placed. A forced debit waits for its shard, so that shard must
// exist.
func (l *leg) candidates() []*shard {
	for i := range l.debit.Charges {
		if l.debit.Charges[i].Force {
			return l.m.usable()
		}
	}
	return l.m.likely()
}

// on returns the leg's job, placed on one shard. The job may be sent on from there while there are other shards to go to.
func (l *leg) on(sh *shard) placed {
	j, split := l.job(), len(l.m.all()) > 1
	j.roams = j.forced == nil && l.moves < maxMoves && (split && l.heats < maxHeats || !split && l.next() > 0)
	return placed{sh: sh, j: j, hoped: split && l.roomiest(sh) >= 0}
}

// next returns the first shard of the generation to try next while shards are sought: 1; 2 and 3; 4 to 7; and so on. 0:
// there is none, or a shard of it was found missing just now.
func (l *leg) next() int {
	k := max(1, 2*l.sought)
	if k >= l.m.s.cfg.MaxShards || l.m.ended(k) {
		return 0
	}
	return k
}

// another returns the shard to which the leg moves on. If the bucket is not known to be split, shard 0 is throttled, and
// another process may have split it. The leg then tries a random shard of each generation until one answers. Throttled
// calls cost nothing, and if the bucket is not split that deep, the first missing shard says so.
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

// warm makes throttled writes to other shards count for this one.
func (sh *shard) warm(denied int) {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	sh.meter.denied = max(sh.meter.denied, denied)
}

// divert sends on the takes of a write that was throttled for its key, and those that wait. The lane must be locked.
func (sh *shard) divert(b *batch, err error) {
	if forKey(err) {
		b.jobs = slices.DeleteFunc(b.jobs, sh.sendAway)
		sh.lane.Drop(sh.sendAway)
	}
}

// sendAway sends on a take that this shard cannot decide for now, if the take may move, and reports whether it did.
func (sh *shard) sendAway(j *job) bool {
	if j.roams {
		j.away = true
		sh.answer(j, nil)
	}
	return j.roams
}

// scout returns shard k, of which nothing may be known yet.
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

// ends records that shard k does not exist.
func (m *memory) ends(k int) {
	m.flat.Store(int32(born(k).n / 2))
	m.flatAt.Store(m.s.now())
}

// ended reports whether a shard of the generation that begins with k, or of an earlier one, was found missing just now.
func (m *memory) ended(k int) bool {
	flat := int(m.flat.Load())
	if flat == 0 || k < flat {
		return false
	}
	age := m.s.now() - m.flatAt.Load()
	return age >= 0 && age < int64(m.s.cfg.CallTimeout)
}

// doubts measures how far what is remembered of a bucket's shards can be relied on. It counts the refusals of takes for
// which the last sight showed room, less the admissions of such takes.
type doubts struct {
	mu sync.Mutex
	n  int
	at time.Time // when a shard last refused like this
}

const (
	mostDoubts = 8
	manyDoubts = 4
)

// judge learns from the answer to a take. A refusal because of the process's own debits raises no doubt: no other process
// had written by then.
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

// short reports whether other processes take everything that the bucket has, on all shards: it refused just now although
// it seemed to have room, and has done so more often than not. Another shard is then as likely to refuse as the first.
func (m *memory) short() bool {
	if m.s.cfg.Guard < 0 {
		return false
	}
	d := &m.doubts
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n >= manyDoubts && m.s.clock().Sub(d.at) < m.s.cfg.RejectionTTL
}
