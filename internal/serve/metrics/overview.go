package metrics

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/admission"
)

// All stands for every namespace in an overview.
const All = "*"

// Overview summarizes a server's recent decisions in one namespace, or in all.
type Overview struct {
	At        time.Time `json:"at"`
	Started   time.Time `json:"started"`
	Version   string    `json:"version"`
	Namespace string    `json:"namespace"`
	PerSecond Rates     `json:"per_second"`
	Totals    Totals    `json:"totals"`
	Latency   Latency   `json:"latency_ms"`
	Store     Store     `json:"store"`
	History   []Second  `json:"history"`
	Spending  []Spent   `json:"top_spending"`
	Refused   []Refused `json:"top_refused"`
}

// Rates are means over the last 10 s, per second.
type Rates struct {
	Allowed  float64 `json:"allowed"`
	Refused  float64 `json:"refused"`
	Degraded float64 `json:"degraded"`
	Local    float64 `json:"local"` // those of Degraded that were admitted from the process's share
	Failed   float64 `json:"failed"`
}

// Totals count decisions.
type Totals struct {
	Allowed  uint64 `json:"allowed"`
	Refused  uint64 `json:"refused"`
	Degraded uint64 `json:"degraded"`
	Local    uint64 `json:"local"` // those of Degraded that were admitted from the process's share
	Failed   uint64 `json:"failed"`
}

// Latency is how long decisions of the last 10 s took, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Store summarizes the store's calls in the last 10 s, in all namespaces.
type Store struct {
	CallsPerDecision float64 `json:"calls_per_decision"`
	ErrorsPerSecond  float64 `json:"errors_per_second"`
	CacheHitRatio    float64 `json:"cache_hit_ratio"` // of the last 10 s; 0 if nothing was looked up
	Breaker          string  `json:"breaker"`         // now: closed, open or half-open
	Unanswered       float64 `json:"unanswered"`      // share of the decisions that it did not answer in time
}

// Second counts the decisions of a past second.
type Second struct {
	At time.Time `json:"at"`
	Totals
}

// Spent is an upper bound on what an entity has spent on a resource since the start. The true value is at most Over
// less.
type Spent struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	Limit    string `json:"limit"`
	Tokens   int64  `json:"tokens"`
	Over     int64  `json:"over"`
}

// Refused is an upper bound on how often an entity was refused on a resource since the start. The true value is at
// most Over less.
type Refused struct {
	Entity   string `json:"entity"`
	Resource string `json:"resource"`
	Refused  int64  `json:"refused"`
	Over     int64  `json:"over"`
}

// topShown is how many entities an overview names.
const topShown = 20

// Overview returns the overview of a namespace, or of every one for [All]. It is empty for a namespace without
// requests.
func (m *Metrics) Overview(namespace string) Overview {
	o := Overview{At: time.Now().UTC(), Started: m.started.UTC(), Version: m.cfg.Version, Namespace: namespace}
	var members []*space
	w := &m.window
	if namespace == All {
		members = append(slices.Collect(maps.Values(m.spaces.All())), m.rest)
	} else if s := m.spaces.All()[namespace]; s != nil {
		members, w = []*space{s}, &s.window
	} else {
		w = &window{}
	}
	spent := make(map[string][]count)
	var most []count
	for _, s := range members {
		for i := range s.shards {
			sh := &s.shards[i]
			sh.mu.Lock()
			o.Totals.add(&sh.totals)
			sh.mu.Unlock()
		}
		by, refused := s.tops()
		for limit, cs := range by {
			spent[limit] = append(spent[limit], cs...)
		}
		most = append(most, refused...)
	}
	o.Spending = spenders(spent)
	o.Refused = []Refused{}
	for _, c := range rank(most, topShown) {
		o.Refused = append(o.Refused, Refused{c.entity, c.resource, c.n, c.over})
	}
	w.fill(&o)
	m.window.fillStore(&o)
	o.Store.Breaker = "closed"
	if lim := m.limiter.Load(); lim != nil {
		o.Store.Breaker = cmp.Or(parts.Of(lim).Outage.Stats().Breaker, o.Store.Breaker)
	}
	return o
}

// spenders divides the places among the limits, because tokens of different limits cannot be compared.
func spenders(spent map[string][]count) []Spent {
	list := []Spent{}
	limits := slices.Sorted(maps.Keys(spent))
	for i, limit := range limits {
		n := (topShown - len(list)) / (len(limits) - i)
		for _, c := range rank(spent[limit], n) {
			if c.n > 0 {
				list = append(list, Spent{c.entity, c.resource, limit, c.n, c.over})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Spent) int { return cmp.Compare(b.Tokens, a.Tokens) })
	return list
}

func (t *Totals) add(n *[outcomes]uint64) {
	t.Allowed += n[allowed]
	t.Refused += n[refused]
	t.Degraded += n[local] + n[unmetered]
	t.Local += n[local]
	t.Failed += n[failed] + n[noShare]
}

// OverviewJSON is [Metrics.Overview] as JSON on one line.
func (m *Metrics) OverviewJSON(namespace string) []byte {
	b, err := json.Marshal(m.Overview(namespace))
	if err != nil {
		return []byte("{}") // never: numbers, text and times of this century always encode
	}
	return b
}

// maxFollowers is how many clients may follow overviews at once.
const maxFollowers = 64

// followers are the clients that follow overviews.
type followers struct {
	slots *admission.Slots // by namespace
	open  atomic.Int64

	mu     sync.Mutex
	second chan struct{}     // closed when the next second has ended
	made   map[string][]byte // the overviews of this second, by namespace
}

// next begins a second.
func (f *followers) next() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.second != nil { // it is nil before the first second
		close(f.second)
	}
	f.second, f.made = make(chan struct{}), make(map[string][]byte)
}

// overview returns the overview of this second, and a channel that is closed when there is a newer one.
func (f *followers) overview(namespace string, overview func(string) []byte) ([]byte, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.made[namespace] == nil {
		f.made[namespace] = overview(namespace)
	}
	return f.made[namespace], f.second
}

// Follow calls send with a namespace's overview as JSON, at once and then every second, until ctx is done, the
// metrics are closed, or send fails. Seconds that end while send is running are skipped. It returns false without
// calling send if there are already as many followers as allowed; one namespace may have three quarters of all.
func (m *Metrics) Follow(ctx context.Context, namespace string, send func(overview []byte) error) bool {
	who := namespace
	if _, known := m.spaces.All()[namespace]; !known && namespace != All {
		who = Other
	}
	f := &m.followers
	if m.end.Err() != nil || !f.slots.Try(who) {
		return false
	}
	defer f.slots.Free(who)
	f.open.Add(1)
	defer f.open.Add(-1)
	for {
		b, next := f.overview(namespace, m.OverviewJSON)
		if send(b) != nil {
			return true
		}
		select {
		case <-next:
		case <-m.end.Done():
		case <-ctx.Done():
		}
		if ctx.Err() != nil || m.end.Err() != nil { // also if several are done
			return true
		}
	}
}
