package simulate

import (
	"math/bits"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/clock"
)

// Constants of the driver, under the same names.
const (
	aloneAfter   = 32
	hotRate      = 800
	hotFor       = int64(2 * time.Second)
	paceOver     = int64(time.Second)
	paceShare    = 0.95
	guardShare   = 0.01
	maxPause     = int64(25 * time.Millisecond)
	returnDelay  = int64(20 * time.Millisecond)
	callTimeout  = int64(time.Second)
	writeTimeout = 2 * time.Second
	maxMoves     = 8
	maxHeats     = 2
	mostDoubts   = 8
	manyDoubts   = 4
)

// lane makes a process's writes to one shard of a bucket, one at a time, and remembers what the last answer showed. It
// models the driver's shard and the coalescer's lane.
type lane struct {
	p *process
	m *memory
	k int

	seen   item
	known  bool // something has been seen
	shown  int  // number of the write that showed it
	sent   int
	denied int64 // when the last write whose condition failed was sent; 0: none
	latest int64
	own    int64
	alone  int
	misses int
	from   item // pace: what was seen at least a second ago
	next   item

	measuredAt, measured int64 // the meter's last reading
	hot                  int64
	throttled            int
	choked               bool
	splitting            int64 // until when it should be split; 0: it should not

	batch   *batch
	waiting []*job
	paused  bool
	back    int64 // amount to return
	backDue int64
	armed   int64 // when expired jobs are next answered; 0: not planned
}

// batch is the content of one write.
type batch struct {
	number  int
	at      int64 // when it was sent
	now     int64 // the same, by the process's clock
	place   place
	known   bool // it was planned on an item that exists
	jobs    []*job
	sum     int64
	forced  int64 // the part of sum that may not be refused
	level   int64 // as last seen
	back    int64
	form    form
	guard   int64
	ceiling int64
	split   bool
}

func (l *lane) params() *clock.Params { return &l.p.cell.params }

// place returns the shard's place, as far as it is known.
func (l *lane) place() place {
	if l.known && l.seen.n > l.k {
		return place{l.k, l.seen.n}
	}
	return place{l.k, max(1<<bits.Len(uint(l.k)), l.m.n)}
}

func (l *lane) tick() int64 {
	l.latest = max(l.latest, l.p.clock())
	return l.latest
}

func (l *lane) fresh() bool {
	return l.known && l.seen.exists && l.denied != 0 && l.p.s.now-l.denied < int64(l.p.s.cfg.Hold)
}

func (l *lane) sure(j *job) bool { return l.known && l.shown > j.since || l.fresh() }

// fits reports whether an amount fits what was last seen, in addition to amounts already promised.
func (l *lane) fits(now, spent, amount int64) bool {
	p, pl := *l.params(), l.place()
	reading := pl.clock(&p, now)
	p.Burst = pl.burst(&p)
	level := reading
	if l.known && l.seen.exists {
		level = l.seen.level
	}
	if spent != 0 {
		level = clock.Spend(level, reading, spent)
	}
	return p.Fits(level, reading, amount)
}

// room returns what is available according to what was last seen.
func (l *lane) room() int64 {
	pl := l.place()
	room := pl.burst(l.params())
	if l.known && l.seen.exists {
		room -= clock.Outstanding(l.seen.level-l.back, pl.clock(l.params(), l.tick()))
	}
	return room
}

// local reports whether a job is refused from memory.
func (l *lane) local(j *job) bool {
	return l.batch == nil && l.fresh() && !l.fits(l.tick(), -l.back, j.amount)
}

// add lets a job wait for a write.
func (l *lane) add(j *job) {
	j.since, j.came = l.sent, l.tick()
	l.waiting = append(l.waiting, j)
	l.arm(j.expires)
	l.board()
}

// board plans the next write, according to what was last seen.
func (l *lane) board() {
	if l.batch != nil || l.paused {
		return
	}
	now := l.tick()
	b := &batch{now: now, place: l.place(), known: l.known && l.seen.exists, level: l.seen.level}
	if l.splitting > l.p.s.now {
		if b.place.n == l.m.n && 2*b.place.n <= l.p.s.cfg.MaxShards {
			b.split = true
			l.depart(b)
			return
		}
		l.splitting = 0
	}
	left := l.waiting[:0]
	alone := false
	for _, j := range l.waiting {
		if j.answered {
			continue
		}
		switch {
		case alone:
			left = append(left, j)
		case j.forced || l.fits(now, b.sum, j.amount):
			b.carry(j)
		case l.back > 0 && l.fits(now, b.sum-l.back, j.amount) && len(b.jobs) == 0:
			l.backDue = l.p.s.now // the return comes first
			left = append(left, j)
		case !l.sure(j):
			if alone = len(b.jobs) == 0; alone {
				b.carry(j)
			} else {
				left = append(left, j)
			}
		case len(b.jobs) > 0 && l.misses <= 2 && l.fits(now, 0, j.amount):
			left = append(left, j)
		default:
			l.p.refused(j, l)
		}
	}
	clear(l.waiting[len(left):])
	l.waiting = left
	if len(b.jobs) == 0 && (l.back == 0 || l.p.s.now < l.backDue) {
		return
	}
	if l.back > 0 && (len(b.jobs) == 0 || b.sum >= l.back) {
		b.back, l.back = l.back, 0
	}
	l.choose(b)
	l.depart(b)
}

func (b *batch) carry(j *job) {
	b.jobs = append(b.jobs, j)
	b.sum += j.amount
	if j.forced {
		b.forced += j.amount
	}
}

// choose selects the write's form, and the guard between writers that do not see each other.
func (l *lane) choose(b *batch) {
	if !b.known {
		return
	}
	p := l.params()
	clock, burst := b.place.clock(p, b.now), b.place.burst(p)
	if l.seen.level >= clock {
		b.form = running
	}
	most := int64(guardShare * float64(burst))
	if b.sum == 0 || b.forced > 0 || most <= 0 || l.alone >= aloneAfter || l.seen.level > clock+5*most {
		return
	}
	var g int64
	if l.misses > 0 {
		g = min(b.place.clock(p, b.now+int64(10*time.Millisecond))-clock, burst/10)
		if l.seen.level < clock-g || l.seen.level > clock+g {
			return
		}
	} else if g = l.spare(b); g < 0 || g > most {
		return
	}
	if burst-b.sum-g >= 0 {
		b.form, b.guard, b.ceiling = running, g, clock+max(10*most, g)
	}
}

// spare returns how much each write would have to debit on top for nearly all that the clock issues to be used;
// negative if that is unknown.
func (l *lane) spare(b *batch) int64 {
	if !l.from.exists || l.seen.writes-l.from.writes < 8 {
		return -1
	}
	used := l.seen.debited - l.seen.given - (l.from.debited - l.from.given)
	issued := b.place.clock(l.params(), l.seen.at) - b.place.clock(l.params(), l.from.at)
	return max(0, int64(paceShare*float64(issued))-used) / (l.seen.writes - l.from.writes)
}

// learn records what an answer showed.
func (l *lane) learn(b *batch, it *item, applied bool) {
	if it.exists {
		ours := l.own
		if applied {
			ours++
		}
		switch {
		case applied && it.writes <= 1:
			l.alone = aloneAfter
		case it.writes != ours:
			l.alone = 0
		case l.alone < aloneAfter:
			l.alone++
		}
		l.own = it.writes
		if l.known && l.seen.n != it.n {
			l.measuredAt, l.hot, l.choked = 0, 0, false
		}
		l.read(it.writes, b.now)
		if !l.next.exists || it.at < l.next.at {
			l.from, l.next = *it, *it
		} else if it.at-l.next.at >= paceOver {
			l.from, l.next = l.next, *it
		}
	}
	l.seen, l.known, l.shown = *it, true, b.number
	if !applied {
		l.denied = b.at
	} else if len(b.jobs) == 0 {
		l.denied = 0
	}
	l.m.n = max(l.m.n, it.n)
}

// read measures how often the item is written.
func (l *lane) read(writes, now int64) {
	l.throttled = 0
	elapsed := now - l.measuredAt
	switch {
	case l.measuredAt == 0 || elapsed < 0:
		l.hot = 0
	case elapsed < int64(time.Second):
		return
	case float64(writes-l.measured)/(float64(elapsed)/1e9) > hotRate:
		l.hot += elapsed
	default:
		l.hot = 0
	}
	l.measuredAt, l.measured = now, writes
}

// watch schedules a split of the bucket if its item is written too often.
func (l *lane) watch() {
	if l.hot < hotFor && !l.choked {
		return
	}
	l.hot, l.choked = 0, false
	l.splitting = l.p.s.now + int64(writeTimeout)
}

// pause waits for a random time before the next write.
func (l *lane) pause(most int64) {
	l.paused = true
	l.p.s.after(l.p.s.dice.Int64N(most)+1, func() {
		l.paused = false
		l.board()
	})
}

// arm schedules the answer to jobs whose time is up.
func (l *lane) arm(at int64) {
	if l.armed != 0 && l.armed <= at {
		return
	}
	l.armed = at
	l.p.s.at(at, func() {
		if l.armed != at {
			return // an earlier time was armed since
		}
		l.armed = 0
		var aboard []*job
		if l.batch != nil {
			aboard = l.batch.jobs
		}
		next := int64(0)
		for _, jobs := range [][]*job{aboard, l.waiting} {
			for _, j := range jobs {
				if l.p.late(j); !j.answered && (next == 0 || j.expires < next) {
					next = j.expires
				}
			}
		}
		l.waiting = slices.DeleteFunc(l.waiting, func(j *job) bool { return j.answered })
		if next != 0 {
			l.arm(next)
		}
	})
}
