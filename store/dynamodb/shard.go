package dynamodb

import (
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/coalesce"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// shard makes the writes to one item, one at a time, and remembers what the last answer showed: the last sight. No
// debit relies on the sight alone. The item's conditions check it again, and remembering it only saves calls.
type shard struct {
	s    *Store
	m    *memory
	k    int
	pk   table.Key
	key  map[string]types.AttributeValue // the same for the SDK; nil until it makes a write
	lane *coalesce.Lane[*job]            // its lock guards all below

	seen  *item  // the last sight: what the last answer showed; nil: nothing yet
	shown uint64 // the number of the write that showed it
	sent  uint64 // writes sent so far
	// when the last write whose condition failed was sent: refusals are repeated for a while after that
	denied time.Time
	latest int64 // the latest time at which it judged: it never judges at an earlier time

	lows    []low // of the item's present birth
	wrote   int64 // when the write that showed it was planned
	applied bool  // that write was applied
	pace    pace
	own     int64 // the item's count of writes after our last one
	alone   int   // number of our writes in a row without a write by others in between
	misses  int   // number of conditions that failed in a row
	batch   *batch
	meter   meter
	surplus surplus

	uncounted uncounted
}

func (s *Store) newShard(m *memory, k int) *shard {
	sh := &shard{s: s, m: m, k: k, pk: table.BucketKey(m.key, k), latest: math.MinInt64}
	sh.lane = coalesce.New(&s.fleet, sh)
	return sh
}

// keyItem returns the key as the SDK has it. Only whoever moves the lane calls it.
func (sh *shard) keyItem() map[string]types.AttributeValue {
	if sh.key == nil {
		sh.key = sh.pk.Item()
	}
	return sh.key
}

// place returns the shard's place.
func (sh *shard) place() place { return place{sh.k, len(sh.m.all())} }

// tick returns the time at which to judge now.
func (sh *shard) tick() int64 { return sh.tickAt(sh.s.clock()) }

func (sh *shard) tickAt(t time.Time) int64 {
	sh.latest = max(sh.latest, clock.Nanos(t))
	return sh.latest
}

// raise makes the shard judge at no time before now, the time at which another bucket of the same take or settle
// judges.
func (sh *shard) raise(now int64) int64 {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	sh.latest = max(sh.tick(), now)
	return sh.latest
}

// fresh reports whether the last refusal is recent enough to be repeated from the last sight.
func (sh *shard) fresh() bool { return sh.freshAt(sh.s.clock()) }

func (sh *shard) freshAt(t time.Time) bool {
	if sh.seen == nil || !sh.seen.exists || sh.denied.IsZero() {
		return false
	}
	age := t.Sub(sh.denied)
	return age >= 0 && age < sh.s.cfg.RejectionTTL
}

// sure reports whether the last sight is good enough to answer a job: it is fresh, or it was shown by a write that was
// sent after the job arrived.
func (sh *shard) sure(j *job) bool { return sh.seen != nil && sh.shown > j.since || sh.fresh() }

// busy reports whether other processes write to the item, too.
func (sh *shard) busy() bool { return sh.alone < aloneAfter }

// shared reports whether the last answer showed that others had written since the answer before.
func (sh *shard) shared() bool {
	sh.lane.Lock()
	defer sh.lane.Unlock()
	return sh.alone == 0
}

// aloneAfter is the number of our writes, with none by others in between, after which a shard counts as ours alone.
const aloneAfter = 32

// learn remembers what an answer showed.
func (sh *shard) learn(b *batch, it *item, applied bool) {
	if it.exists {
		ours := sh.own
		if applied {
			ours++
		}
		switch {
		case applied && it.writes <= 1:
			sh.alone = aloneAfter // our write created it
		case it.writes != ours:
			sh.alone = 0
		case sh.alone < aloneAfter:
			sh.alone++
		}
		sh.own = it.writes
		sh.meter.denied = 0
		sh.meter.read(it.writes, b.now)
		sh.pace.read(it)
	}
	if sh.seen != nil && sh.seen.id != it.id {
		sh.lows = nil
	}
	if applied {
		sh.sank(b, it)
	}
	sh.seen, sh.shown, sh.wrote, sh.applied = it, b.number, b.now, applied
	switch {
	case !applied:
		sh.denied = b.sent
	case len(b.jobs) == 0 || b.jobs[0].kind != take:
		sh.denied = time.Time{} // a return or another change of ours
	}
}

// describe names the item for messages.
func (sh *shard) describe() string { return sh.s.cfg.Table + " " + sh.m.key.String() }

// job is one caller's request to one shard.
type job struct {
	coalesce.Ticket

	kind    kind
	v       *view
	amounts []int64 // by limit of the view; negative: returned by a settle
	forced  []bool  // of a take: the amounts that cannot be refused; nil: none
	shadow  *shadow // of a take: the amounts that are left out if they do not fit; nil: none
	epoch   uint64
	since   uint64    // number of writes sent before it arrived
	came    int64     // when it arrived, by the shard's time
	expires time.Time // when to give up
	proof   *proof    // of an undo: of the debit
	tries   int       // of an undo: number of writes whose condition failed
	takenOn place     // the place of the shard when it was debited
	mayMove bool      // of a take: it is sent on to another shard if its own is throttled
	// of a take: it counts as a request, as one job per bucket does; of an undo: it undoes such a take
	counted bool
	upkeep  upkeep

	// The answer.
	err     error
	told    bool // answered from memory: it never joined a lane
	moved   bool // it was not decided, and must be placed anew
	allowed bool
	undone  bool // what it took is being returned
	at      int64
	item    *item
	// what jobs after it in the write debited of its limits: the item's levels are this much too high for it
	later []int64

	space, space2 [4]int64
}

type kind byte

const (
	take   kind = iota // debits that may be refused
	settle             // debits that cannot be refused, and returns
	undo               // undoes a debit as if it had never been made
	tend               // upkeep of the item, which rides alone
)

func (j *job) unbound(i int) bool { return j.kind == settle || len(j.forced) > 0 && j.forced[i] }

// newJob returns a job without amounts.
func (s *Store) newJob(k kind, v *view, epoch uint64) *job { return new(job).init(k, v, epoch) }

func (j *job) init(k kind, v *view, epoch uint64) *job {
	j.kind, j.v, j.epoch = k, v, epoch
	if n := len(v.limits); n <= len(j.space) {
		j.amounts = j.space[:n]
	} else {
		j.amounts = make([]int64, n)
	}
	return j
}

// level returns a limit's level as it was when the job, and none after it, was decided.
func (j *job) level(name string) (int64, bool) {
	level, ok := j.item.level(name)
	if ok && j.later != nil {
		if i := slices.Index(j.v.names, name); i >= 0 {
			level -= j.later[i]
		}
	}
	return level, ok
}

// shadow says which charges of a take never refuse it: those that do not fit are left out.
type shadow struct {
	is    []bool
	wants []int64 // the requested amounts; the job's amounts are what the planned write debits of them
	out   []bool  // left out of the write
}

func (j *job) inShadow(i int) bool { return j.shadow != nil && j.shadow.is[i] }

// leftOut reports whether a charge was left out.
func (j *job) leftOut(i int) bool { return j.shadow != nil && j.shadow.out[i] }

// nothing reports whether a job has no amounts.
func (j *job) nothing() bool {
	for _, a := range j.amounts {
		if a != 0 {
			return false
		}
	}
	return true
}

// returns reports whether a settle returns something.
func (j *job) returns() bool { return j.kind == settle && slices.ContainsFunc(j.amounts, negative) }

// debits reports whether a settle debits something.
func (j *job) debits() bool { return j.kind == settle && slices.ContainsFunc(j.amounts, positive) }

func negative(a int64) bool { return a < 0 }
func positive(a int64) bool { return a > 0 }

// add queues a job for a write. The lane must be locked.
func (sh *shard) add(j *job) {
	sh.stamp(j)
	sh.lane.Add(j)
}

func (sh *shard) stamp(j *job) {
	j.since, j.came = sh.sent, sh.tick()
	if j.expires.IsZero() {
		j.expires = time.Now().Add(sh.s.cfg.WriteTimeout)
	}
}

func (sh *shard) answer(j *job, err error) {
	j.err = err
	sh.lane.Answer(j)
}

// decide answers a take or settle with the item that decided it.
func (sh *shard) decide(j *job, allowed bool, now int64, it *item) {
	j.err = nil // left by earlier tries
	j.allowed, j.at, j.item = allowed, now, it
	sh.lane.Answer(j)
}
