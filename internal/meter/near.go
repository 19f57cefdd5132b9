package meter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/store"
)

const (
	nearShards = 16
	// maxNear is the number of limits of buckets for which a shard remembers the events sent.
	maxNear = 4096
	// refusedEvery is the window of refusals.
	refusedEvery = time.Hour
)

// near remembers the near-limit events that were sent.
type near struct {
	tell      func(context.Context, Event)
	seed      maphash.Seed
	forgotten atomic.Uint64 // for lack of room
	shards    [nearShards]nearShard
}

type nearShard struct {
	size atomic.Int64 // of sent
	mu   sync.Mutex
	sent map[nearKey][]sent
}

// nearKey identifies a limit of a bucket.
type nearKey struct {
	bucket   store.Bucket
	limit    string
	override bool
}

// sent is an event that was sent and must not be repeated.
type sent struct {
	percent    int   // the threshold, as of usageOf; 0 for a refusal
	start, end int64 // of the window, in nanoseconds since the epoch of limits' clocks
}

func (t sent) length() int64 { return t.end - t.start }

// nearLook is one look at a limit.
type nearLook struct {
	thresholds []int     // nil for the default
	at         time.Time // the store's time
	now        int64     // the same
	shadow     bool
	refused    bool
	moved      int64 // millitokens just debited or, if negative, given back
}

// due is a set of events to send: one bit for each threshold, and one for a refusal.
type due uint16

const refusalDue due = 1 << MaxThresholds

func newNear(tell func(context.Context, Event)) *near {
	return &near{tell: tell, seed: maphash.MakeSeed()}
}

func percentOf(used, burst int64) int {
	hi, lo := bits.Mul64(uint64(max(used, 0)), 100)
	q, _ := bits.Div64(hi, lo, uint64(burst)) // hi is at most 50, and a burst at least one token
	return int(min(q, 1<<31-1))
}

// look sends the events that are due for a limit.
func (n *near) look(ctx context.Context, namespace string, b store.Bucket, lv *store.Level, o *nearLook) {
	lim := lv.Limit
	use := usageOf(lv, o)
	d := n.see(nearKey{b, lim.Name, lim.Override}, o, &use)
	if d == 0 {
		return
	}
	e := Event{
		Namespace: namespace, Entity: b.Entity, Resource: b.Resource, Limit: lim.Name, Override: lim.Override,
		Shadow: o.shadow, Kind: Threshold, Used: use.used, Of: use.of, Left: use.left, At: o.at,
		WindowStart: clock.Time(use.window.start), WindowLength: time.Duration(use.window.length()),
	}
	for i, t := range use.thresholds {
		if d&(1<<i) != 0 {
			e.Percent = max(t, 0)
			e.ID = e.id(b.Namespace, t)
			n.tell(ctx, e)
		}
	}
	if d&refusalDue != 0 {
		e.Kind, e.Percent = Refusal, max(use.high, 0)
		e.WindowStart, e.WindowLength = clock.Time(windowAt(o.now, refusedEvery).start), refusedEvery
		e.ID = e.id(b.Namespace, 0)
		n.tell(ctx, e)
	}
}

// usage is how much of a limit is used at a look.
type usage struct {
	thresholds     []int
	high, low      int   // what is used now, and the lower of what is and was just before, in terms of thresholds
	window         sent  // in which an event is sent once
	anew           bool  // each window has its own events, also if usage never fell
	used, of, left int64 // tokens
}

// usageOf returns how much of a limit is used. Thresholds are percentages of the burst. A balance has none: it has one
// threshold if the debit brought it below a power of ten, which is -1 less the digits of what is left.
func usageOf(lv *store.Level, o *nearLook) (u usage) {
	l, p := lv.Limit, lv.Limit.Params()
	if u.thresholds = o.thresholds; u.thresholds == nil {
		u.thresholds = defaultThresholds[p.Kind()]
	}
	used := clock.Outstanding(lv.Level, p.Clock(o.now))
	switch p.Kind() {
	case clock.Credits:
		u.window, u.left = windowAt(o.now, refusedEvery), clock.MulDivFloor(-lv.Level, 1, 1000)
		digits, before := digitsOf(u.left), digitsOf((-lv.Level+o.moved)/1000)
		if u.high, u.low = -1-digits, -1-max(before, digits); u.low == u.high || len(u.thresholds) == 0 {
			u.thresholds = nil
			return u
		}
		u.thresholds, u.of = []int{u.high}, 1
		for range digits {
			u.of *= 10
		}
		return u
	case clock.Quota:
		u.anew = true
		u.window.start, u.window.end = l.Window.Bounds(o.now)
	case clock.Rate, clock.Slots:
		u.window = windowAt(o.now, max(l.Period, time.Minute))
	}
	u.high, u.low = percentOf(used, l.Burst), percentOf(min(used, used-o.moved), l.Burst)
	u.used, u.of = (used+999)/1000, l.Burst/1000
	u.left = u.of - u.used
	return u
}

// digitsOf returns the number of digits of a number of tokens; 0 if there are none.
func digitsOf(tokens int64) (n int) {
	for ; tokens > 0; tokens /= 10 {
		n++
	}
	return n
}

// windowAt returns the window of the given length that contains now.
func windowAt(now int64, length time.Duration) sent {
	start := now - now%int64(length)
	if start > now {
		start -= int64(length)
	}
	return sent{start: start, end: start + int64(length)}
}

// see returns the events that are due for a limit, and remembers them as sent. A limit whose period has changed has
// windows of its own; overrides, which may differ from request to request, do not.
func (n *near) see(k nearKey, o *nearLook, u *usage) (d due) {
	s := &n.shards[maphash.Comparable(n.seed, k)%nearShards]
	quiet := !o.refused && (len(u.thresholds) == 0 || u.high < u.thresholds[0])
	if quiet && s.size.Load() == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	has, known := s.sent[k]
	if quiet && !known {
		return 0
	}
	for i, t := range u.thresholds {
		at := slices.IndexFunc(has, func(h sent) bool { return h.percent == t })
		if at >= 0 && (u.anew || u.low < t) && (has[at].start < u.window.start ||
			!k.override && has[at].length() != u.window.length()) {
			has = slices.Delete(has, at, at+1)
			at = -1
		}
		if at < 0 && u.high >= t {
			has = append(has, sent{t, u.window.start, u.window.end})
			d |= 1 << i
		}
	}
	hour := windowAt(o.now, refusedEvery)
	at := slices.IndexFunc(has, func(h sent) bool { return h.percent == 0 })
	if at >= 0 && has[at].start < hour.start {
		has = slices.Delete(has, at, at+1)
		at = -1
	}
	if at < 0 && o.refused {
		has = append(has, hour)
		d |= refusalDue
	}
	n.keep(s, k, has, known)
	return d
}

// keep remembers the events sent for a limit. The shard is locked.
func (n *near) keep(s *nearShard, k nearKey, has []sent, known bool) {
	switch {
	case len(has) == 0:
		delete(s.sent, k)
	case known:
		s.sent[k] = has
	default:
		if s.sent == nil {
			s.sent = make(map[nearKey][]sent)
		}
		if len(s.sent) >= maxNear {
			n.forget(s)
		}
		s.sent[k] = has
	}
	s.size.Store(int64(len(s.sent)))
}

// forget drops an eighth of a shard: the entries whose windows ended first.
func (n *near) forget(s *nearShard) {
	type entry struct {
		key nearKey
		end int64
	}
	entries := make([]entry, 0, len(s.sent))
	for k, has := range s.sent {
		last := slices.MaxFunc(has, func(a, b sent) int { return cmp.Compare(a.end, b.end) })
		entries = append(entries, entry{k, last.end})
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.end, b.end) })
	for _, e := range entries[:len(entries)/8] {
		delete(s.sent, e.key)
		n.forgotten.Add(1)
	}
}

// stats returns the number of limits whose events are remembered, and of those that had to be forgotten.
func (n *near) stats() (size int, forgotten uint64) {
	if n == nil {
		return 0, 0
	}
	for i := range n.shards {
		size += int(n.shards[i].size.Load())
	}
	return size, n.forgotten.Load()
}

// Event is a near-limit event: the used part of a limit has reached a threshold, or the limit has refused.
type Event struct {
	ID                          string
	Namespace, Entity, Resource string
	Limit                       string
	Override, Shadow            bool
	Kind                        Kind
	Percent                     int
	Used, Of, Left              int64 // tokens; of a balance, Of is the power of ten that Left fell below
	WindowStart                 time.Time
	WindowLength                time.Duration
	At                          time.Time
}

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	Threshold Kind = "threshold"
	Refusal   Kind = "refused"
)

// MaxThresholds is the maximum number of thresholds.
const MaxThresholds = 8

// id returns the event's ID for receivers. Ids of entities and limits contain no zero byte.
func (e *Event) id(space string, threshold int) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{
		space, e.Entity, e.Resource, e.Limit, strconv.FormatBool(e.Override), string(e.Kind), strconv.Itoa(threshold),
		strconv.FormatInt(e.WindowStart.UnixNano(), 10), strconv.FormatInt(int64(e.WindowLength), 10),
	}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
