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
	percent    int   // the threshold; 0 for a refusal
	start, end int64 // of the window, in nanoseconds since the epoch of limits' clocks
}

func (t sent) length() int64 { return t.end - t.start }

// nearLook is one look at a limit.
type nearLook struct {
	thresholds []int
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
	p := clock.Params{Amount: lim.Amount, Period: int64(lim.Period), Burst: lim.Burst}
	used := clock.Outstanding(lv.Level, p.Clock(o.now))
	high := percentOf(used, lim.Burst)
	low := percentOf(min(used, used-o.moved), lim.Burst)
	window := max(lim.Period, time.Minute)
	d := n.see(nearKey{b, lim.Name, lim.Override}, o, windowAt(o.now, window), low, high)
	if d == 0 {
		return
	}
	e := Event{
		Namespace: namespace, Entity: b.Entity, Resource: b.Resource, Limit: lim.Name, Override: lim.Override,
		Shadow: o.shadow,
		Kind:   Threshold, Used: (max(used, 0) + 999) / 1000, Of: lim.Burst / 1000, At: o.at,
		WindowStart: clock.Time(windowAt(o.now, window).start), WindowLength: window,
	}
	for i, t := range o.thresholds {
		if d&(1<<i) != 0 {
			e.Percent = t
			e.ID = e.id(b.Namespace)
			n.tell(ctx, e)
		}
	}
	if d&refusalDue != 0 {
		e.Kind, e.Percent = Refusal, high
		e.WindowStart, e.WindowLength = clock.Time(windowAt(o.now, refusedEvery).start), refusedEvery
		e.ID = e.id(b.Namespace)
		n.tell(ctx, e)
	}
}

// windowAt returns the window of the given length that contains now.
func windowAt(now int64, length time.Duration) sent {
	start := now - now%int64(length)
	if start > now {
		start -= int64(length)
	}
	return sent{start: start, end: start + int64(length)}
}

// see returns the events that are due for a limit, and remembers them as sent. high is the used percentage now, low the
// lower of the percentages just before and after. A limit whose period has changed has windows of its own; overrides,
// which may differ from request to request, do not.
func (n *near) see(k nearKey, o *nearLook, window sent, low, high int) (d due) {
	s := &n.shards[maphash.Comparable(n.seed, k)%nearShards]
	quiet := !o.refused && (len(o.thresholds) == 0 || high < o.thresholds[0])
	if quiet && s.size.Load() == 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	has, known := s.sent[k]
	if quiet && !known {
		return 0
	}
	for i, t := range o.thresholds {
		at := slices.IndexFunc(has, func(h sent) bool { return h.percent == t })
		if at >= 0 && low < t && (has[at].start < window.start || !k.override && has[at].length() != window.length()) {
			has = slices.Delete(has, at, at+1)
			at = -1
		}
		if at < 0 && high >= t {
			has = append(has, sent{t, window.start, window.end})
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
	Kind                        string // Threshold or Refusal
	Percent                     int
	Used, Of                    int64 // tokens
	WindowStart                 time.Time
	WindowLength                time.Duration
	At                          time.Time
}

// Kinds of events.
const (
	Threshold = "threshold"
	Refusal   = "refused"
)

// MaxThresholds is the maximum number of thresholds.
const MaxThresholds = 8

// id returns the event's ID for receivers. Ids of entities and limits contain no zero byte.
func (e *Event) id(space string) string {
	percent := e.Percent
	if e.Kind == Refusal {
		percent = 0
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{
		space, e.Entity, e.Resource, e.Limit, strconv.FormatBool(e.Override), e.Kind, strconv.Itoa(percent),
		strconv.FormatInt(e.WindowStart.UnixNano(), 10), strconv.FormatInt(int64(e.WindowLength), 10),
	}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
