package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Config defines what to try on usage. Limits is required.
type Config struct {
	// Limits returns the limits proposed for an entity on a resource, or nil to leave it out.
	Limits func(entity, resource string) []weir.Limit
	// Tokens maps the names of proposed limits to the recorded ones that they are checked against. Other limits are
	// checked against the recorded limit of the same name or, if there is none, against the number of requests.
	Tokens map[string]string
	// Top is how many of the most refused buckets are reported. The default is 10.
	Top int
	// Target is an acceptable share of refused tokens, above 0 and below 1, to suggest values for. 0: no suggestions.
	Target float64
}

// Report is what the limits would have refused. Token counts are for each limit alone.
type Report struct {
	From    time.Time    `json:"from"`
	To      time.Time    `json:"to"`
	Window  admin.Window `json:"window"`
	Windows int          `json:"windows"` // examined
	Buckets int          `json:"buckets"` // of an entity on a resource
	Then    int64        `json:"refused_then"`

	Limits []LimitResult `json:"limits"`
	// Surely counts the buckets in which something would certainly have been refused, Perhaps those in which
	// something could have been.
	Surely  int            `json:"buckets_surely"`
	Perhaps int            `json:"buckets_perhaps"`
	Most    []BucketResult `json:"most_refused"`
	When    []Moment       `json:"when"` // windows in which something would or could have been refused
	Suggest []Suggestion   `json:"suggested,omitempty"`
	Notes   []string       `json:"notes,omitempty"`
}

// Bounds is how many tokens would have been refused.
type Bounds struct {
	Asked  int64 `json:"asked"` // what was spent, and what was refused at the time
	Least  int64 `json:"at_least"`
	Even   int64 `json:"if_even"` // if requests had come evenly except in the busiest minute
	AtMost int64 `json:"at_most"`
}

// LimitResult is what limits of one name would have refused.
type LimitResult struct {
	Limit string `json:"limit"`
	Bounds

	Surely  int `json:"buckets_surely"`
	Perhaps int `json:"buckets_perhaps"`
}

// BucketResult is what a limit would have refused an entity on a resource.
type BucketResult struct {
	Entity   string     `json:"entity"`
	Resource string     `json:"resource"`
	Limit    weir.Limit `json:"limit"`
	Bounds

	First time.Time `json:"first"` // first window with a certain or possible refusal
}

// Moment is a window.
type Moment struct {
	Start   time.Time `json:"start"`
	Surely  int       `json:"buckets_surely"`
	Perhaps int       `json:"buckets_perhaps"`
}

// series is what was recorded in a bucket for one limit to check.
type series struct {
	entity, resource string
	limit            weir.Limit
	windows          []window
}

// Run checks windows of entities, all of one type, against limits.
func Run(windows []admin.Usage, cfg Config) (*Report, error) {
	cfg.Top = cmp.Or(cfg.Top, 10)
	if cfg.Target < 0 || cfg.Target >= 1 {
		return nil, &weir.ConfigError{Field: "target", Reason: "must be from 0 to below 1"}
	}
	windows = slices.Clone(windows)
	slices.SortStableFunc(windows, func(a, b admin.Usage) int { return a.Start.Compare(b.Start) })
	r := &Report{Limits: []LimitResult{}, Most: []BucketResult{}, When: []Moment{}}
	all, err := r.lay(windows, &cfg)
	if err != nil {
		return nil, err
	}
	r.judge(all, &cfg)
	if cfg.Target > 0 {
		r.suggest(all, cfg.Target)
	}
	return r, nil
}

// lay groups the recorded usage by bucket and limit, each in order of time.
func (r *Report) lay(windows []admin.Usage, cfg *Config) ([]*series, error) {
	type bucket struct{ entity, resource string }
	known := make(map[bucket][]*series)
	var all []*series
	var byRequests, noPeak, ridden, balances, slots bool
	for i := range windows {
		u := &windows[i]
		if u.Entity == "" || u.Resource == "" || u.Own != nil {
			return nil, fmt.Errorf(
				"the window of %s is not of an entity on a resource: list usage by entity",
				u.Start.Format(time.RFC3339),
			)
		}
		if i == 0 {
			r.From, r.Window = u.Start, u.Window
		} else if u.Window != r.Window {
			return nil, fmt.Errorf("windows are %s and %s: give those of one type", r.Window, u.Window)
		}
		b := bucket{u.Entity, u.Resource}
		of, ok := known[b]
		if !ok {
			var credits, held bool
			of, credits, held = seriesOf(u, cfg)
			balances, slots = balances || credits, slots || held
			known[b] = of
			if all = append(all, of...); len(of) > 0 {
				r.Buckets++
			}
		}
		if len(of) == 0 {
			continue
		}
		r.Windows++
		r.Then += u.Refused
		r.To = u.Window.Next(u.Start)
		for _, s := range of {
			w, counted := windowOf(u, cmp.Or(cfg.Tokens[s.limit.Name], s.limit.Name))
			byRequests = byRequests || !counted
			noPeak = noPeak || counted && w.peak == 0 && w.spent > 0
			ridden = ridden || counted && u.Requests == 0 && w.spent > 0
			if w.spent+w.refused > 0 {
				s.windows = append(s.windows, w)
			}
		}
	}
	for note, applies := range map[string]bool{
		"where a limit's tokens were not recorded, it is held against the number of requests, whose busiest minute " +
			"is not known": byRequests,
		"the busiest minute is not known everywhere: at most as if all of a window had come at once":       noPeak,
		"balances are left out: what they refuse depends on what was credited, which usage does not show":  balances,
		"slots are left out: what they refuse depends on how long each is held, which usage does not show": slots,
		"the number of requests is not recorded: the size of each is not known":                            ridden,
	} {
		if applies {
			r.Notes = append(r.Notes, note)
		}
	}
	slices.Sort(r.Notes)
	return all, nil
}

// seriesOf returns what to check in a bucket, and whether balances and slots are left out.
func seriesOf(u *admin.Usage, cfg *Config) (of []*series, balances, slots bool) {
	for _, l := range cfg.Limits(u.Entity, u.Resource) {
		l, ok := enforced(l, u.Entity)
		switch {
		case !ok:
		case l.Balance:
			balances = true
		case l.Slots > 0:
			slots = true
		default:
			of = append(of, &series{entity: u.Entity, resource: u.Resource, limit: l})
		}
	}
	return of, balances, slots
}

// enforced returns the limit that applies to an entity, and false if none does.
func enforced(l weir.Limit, entity string) (weir.Limit, bool) {
	if !l.EnforcedFor(entity) {
		if l.Former == (weir.Rate{}) {
			return l, false
		}
		l.Amount, l.Period, l.Burst, l.Window = l.Former.Amount, l.Former.Period, l.Former.Burst, l.Former.Window
		l.Slots, l.Heal = l.Former.Slots, l.Former.Heal
	}
	l.Enforce, l.Former = weir.EnforceOn, weir.Rate{}
	return l, true
}

// windowOf returns what was recorded of a limit. If counted is false, it is the number of requests.
func windowOf(u *admin.Usage, limit string) (w window, counted bool) {
	w = window{start: u.Start, end: u.Window.Next(u.Start)}
	for _, l := range u.Limits {
		if l.Limit != limit {
			continue
		}
		w.spent, w.returned = float64(l.Debited), float64(l.Returned)
		w.peak, w.refused = float64(l.Peak), float64(l.RefusedTokens)
		if u.Requests > 0 {
			w.request = w.spent / float64(u.Requests)
		}
		if w.refused == 0 { // not recorded, as in CSV
			w.refused = float64(l.Refused) * max(1, w.request)
		}
		return w, true
	}
	w.spent, w.refused, w.request = float64(u.Requests), float64(u.Refused), 1
	return w, false
}

// hits are the buckets, by entity and resource, in which something could have been refused. The value is true if
// something certainly would have been.
type hits map[[2]string]bool

// surely counts the buckets in which something would certainly have been refused.
func (h hits) surely() (n int) {
	for _, sure := range h {
		if sure {
			n++
		}
	}
	return n
}

// judge fills in what would have been refused.
func (r *Report) judge(all []*series, cfg *Config) {
	limits := make(map[string]*LimitResult)
	moments := make(map[time.Time]hits)
	buckets := make(hits)
	sums := make(map[string]bounds)
	for _, s := range all {
		lr := limits[s.limit.Name]
		if lr == nil {
			lr = &LimitResult{Limit: s.limit.Name}
			limits[s.limit.Name] = lr
		}
		br, total := s.judge(moments)
		sums[s.limit.Name] = sums[s.limit.Name].plus(total)
		lr.Asked += br.Asked
		none, some := total.surely()
		if none {
			continue
		}
		lr.Perhaps++
		if some {
			lr.Surely++
		}
		buckets[s.id()] = buckets[s.id()] || some
		r.Most = append(r.Most, br)
	}
	for name, lr := range limits {
		lr.Least, lr.Even, lr.AtMost = sums[name].tokens()
		r.Limits = append(r.Limits, *lr)
	}
	slices.SortFunc(r.Limits, func(a, b LimitResult) int { return cmp.Compare(a.Limit, b.Limit) })
	r.Surely, r.Perhaps = buckets.surely(), len(buckets)
	for start, h := range moments {
		r.When = append(r.When, Moment{start, h.surely(), len(h)})
	}
	slices.SortFunc(r.When, func(a, b Moment) int { return a.Start.Compare(b.Start) })
	slices.SortFunc(r.Most, moreRefused)
	r.Most = r.Most[:min(cfg.Top, len(r.Most)):len(r.Most)]
}

// id names the bucket.
func (s *series) id() [2]string { return [2]string{s.entity, s.resource} }

// judge returns what the limit would have refused, and adds the bucket to each window in which that is something.
func (s *series) judge(moments map[time.Time]hits) (br BucketResult, total bounds) {
	t := newTrial(s.limit)
	br = BucketResult{Entity: s.entity, Resource: s.resource, Limit: s.limit}
	for i := range s.windows {
		w := &s.windows[i]
		b := t.see(w)
		total = total.plus(b)
		br.Asked += int64(w.spent + w.refused)
		none, some := b.surely()
		if none {
			continue
		}
		if br.First.IsZero() {
			br.First = w.start
		}
		if moments[w.start] == nil {
			moments[w.start] = make(hits)
		}
		moments[w.start][s.id()] = moments[w.start][s.id()] || some
	}
	br.Least, br.Even, br.AtMost = total.tokens()
	return br, total
}

// moreRefused orders buckets by the share of what would have been refused, the highest first.
func moreRefused(a, b BucketResult) int {
	return cmp.Or(
		cmp.Compare(share(b.Least, b.Asked), share(a.Least, a.Asked)),
		cmp.Compare(share(b.Even, b.Asked), share(a.Even, a.Asked)),
		cmp.Compare(share(b.AtMost, b.Asked), share(a.AtMost, a.Asked)),
		cmp.Compare(a.Entity, b.Entity),
		cmp.Compare(a.Resource, b.Resource),
		cmp.Compare(a.Limit.Name, b.Limit.Name),
	)
}

func share(part, whole int64) float64 { return float64(part) / float64(max(1, whole)) }
