package metrics

import (
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weirlimits/weir/internal/serve/growing"
)

// Other is the label value of all names beyond the maximum.
const Other = "other"

// labels holds the values of a label: of the names that occur, the first max that the catalog has, and the first max
// others, which callers may have made up. Each has a number from 1; 0 is [Other], also for names that are no label
// values: those that are not UTF-8, and [Other] itself.
type labels struct {
	max   int
	known growing.Map[string, int]
	mu    sync.Mutex
	have  [2]int // how many of the known names the catalog did not have, and had, when they first occurred
}

// of returns the number of a name. inCatalog is called only for a name that has none.
func (l *labels) of(name string, inCatalog func() bool) int {
	n, known := l.known.All()[name]
	if known || name == Other || !utf8.ValidString(name) {
		return n
	}
	which := 0
	if inCatalog() {
		which = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.have[which] < l.max {
		n, _ = l.known.Of(name, 2*l.max, func(known int) int {
			l.have[which]++
			return known + 1
		})
	}
	return n
}

// names returns the values by number.
func (l *labels) names() []string {
	known := l.known.All()
	names := make([]string, len(known)+1)
	names[0] = Other
	for name, n := range known {
		names[n] = name
	}
	return names
}

// outcome is the outcome of a decision.
type outcome int

const (
	allowed   outcome = iota
	refused           // by a limit
	local             // admitted without the store, from this process's share of the limits
	unmetered         // admitted without the store and without limits: on_unavailable is allow
	failed            // not answered by the store, or not in time
	noShare           // not made: the process has no share of the limits; see [parts.NoShare]
	invalid           // the caller's mistake: no limit and no store decided
	outcomes
)

func (o outcome) String() string {
	return [...]string{"allowed", "refused", "local", "unmetered", "failed", "no_share", "invalid"}[o]
}

const (
	shards = 8
	// topRoom is the capacity of a shard's top.
	topRoom = 32
	// topLimits is how many limits have their spending ranked; each has its own top.
	topLimits = 8
)

// space counts the decisions in one namespace, in shards to reduce contention. An entity is always in the same shard.
type space struct {
	label  int // its number, from 1; 0: the rest
	shards [shards]shard
	window window
}

func newSpace(label int) *space { return &space{label: label} }

// shard is guarded by its lock.
type shard struct {
	mu sync.Mutex
	tally
	max     time.Duration // since the last second
	refused *top
	spent   []limitTop
	_       [64]byte // keeps neighbors on separate cache lines
}

// limitTop ranks the spending of one limit.
type limitTop struct {
	limit string
	*top
}

// tally holds counts that can be added up.
type tally struct {
	totals    [outcomes]uint64
	took      histogram
	resources map[int]*[outcomes]uint64 // by label
	refusals  map[limitKey]uint64
	would     map[int]uint64 // by label of the limit
	quota     uint64         // refused a bucket
}

// limitKey is a limit of a resource, by labels.
type limitKey struct{ limit, resource int }

// of returns the counts of a resource's outcomes.
func (t *tally) of(resource int) *[outcomes]uint64 {
	r := t.resources[resource]
	if r == nil {
		if t.resources == nil {
			t.resources = make(map[int]*[outcomes]uint64)
		}
		r = new([outcomes]uint64)
		t.resources[resource] = r
	}
	return r
}

func (t *tally) refuse(k limitKey, n uint64) {
	if t.refusals == nil {
		t.refusals = make(map[limitKey]uint64)
	}
	t.refusals[k] += n
}

func (t *tally) wouldRefuse(limit int, n uint64) {
	if t.would == nil {
		t.would = make(map[int]uint64)
	}
	t.would[limit] += n
}

// add adds all counts of another tally.
func (t *tally) add(o *tally) {
	for i := range t.totals {
		t.totals[i] += o.totals[i]
	}
	t.took.add(&o.took)
	t.quota += o.quota
	for r, from := range o.resources {
		to := t.of(r)
		for i := range to {
			to[i] += from[i]
		}
	}
	for k, n := range o.refusals {
		t.refuse(k, n)
	}
	for l, n := range o.would {
		t.wouldRefuse(l, n)
	}
}

// spend ranks tokens of a limit; negative ones were returned.
func (sh *shard) spend(k key, limit string, tokens int64) {
	var t *top
	for i := range sh.spent {
		if sh.spent[i].limit == limit {
			t = sh.spent[i].top
			break
		}
	}
	switch {
	case t == nil && (tokens <= 0 || len(sh.spent) == topLimits):
		return
	case t == nil:
		t = newTop(topRoom)
		sh.spent = append(sh.spent, limitTop{limit, t})
	}
	if tokens < 0 {
		t.sub(k, -tokens)
	} else {
		t.add(k, tokens)
	}
}

func (sh *shard) refuse(k key) {
	if sh.refused == nil {
		sh.refused = newTop(topRoom)
	}
	sh.refused.add(k, 1)
}

// sum returns all counts.
func (s *space) sum() (t tally) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		t.add(&sh.tally)
		sh.mu.Unlock()
	}
	return t
}

// tops returns the entities that spent most, by limit, and those refused most.
func (s *space) tops() (spent map[string][]count, refused []count) {
	spent = make(map[string][]count)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, t := range sh.spent {
			spent[t.limit] = append(spent[t.limit], t.all...)
		}
		if sh.refused != nil {
			refused = append(refused, sh.refused.all...)
		}
		sh.mu.Unlock()
	}
	return spent, refused
}
