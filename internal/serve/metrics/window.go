package metrics

import (
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	// historySeconds is how far back an overview's history goes.
	historySeconds = 120
	// lately is the number of seconds that rates and quantiles cover.
	lately = 10
)

// window remembers the counts of each of the last seconds.
type window struct {
	mu sync.Mutex

	last    time.Time // when the most recent second ended
	before  sums      // the counts at that time
	history []Second  // oldest first
	recent  []recent  // the most recent of them
}

// sums are cumulative counts, and the longest decision since they were last taken.
type sums struct {
	totals       [outcomes]uint64
	took         counts
	max          time.Duration
	calls        uint64 // for decisions
	errors       uint64
	hits, misses uint64 // of the limiter's caches
	unanswered   uint64 // decisions that the store did not make, whatever their outcome
}

// recent holds the counts of one second, with its measured length.
type recent struct {
	length time.Duration
	sums
}

// since returns the difference to old.
func (s *sums) since(old *sums) sums {
	d := *s
	for i := range d.totals {
		d.totals[i] -= old.totals[i]
	}
	for i := range d.took {
		d.took[i] -= old.took[i]
	}
	d.calls -= old.calls
	d.errors -= old.errors
	d.unanswered -= old.unanswered
	d.hits -= min(old.hits, d.hits)
	d.misses -= min(old.misses, d.misses)
	return d
}

func (s *sums) add(o *sums) {
	for i := range s.totals {
		s.totals[i] += o.totals[i]
	}
	s.took.add(&o.took)
	s.max = max(s.max, o.max)
	s.calls += o.calls
	s.errors += o.errors
	s.unanswered += o.unanswered
	s.hits += o.hits
	s.misses += o.misses
}

// advance ends a second, and returns its counts.
func (w *window) advance(now time.Time, s *sums) sums {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.IsZero() {
		w.last = now.Add(-time.Second)
	}
	came := s.since(&w.before)
	second := Second{At: w.last.UTC().Round(time.Millisecond)}
	second.add(&came.totals)
	w.history = push(w.history, second, historySeconds)
	w.recent = push(w.recent, recent{now.Sub(w.last), came}, lately)
	w.last, w.before = now, *s
	return came
}

// push appends v and keeps only the last most elements.
func push[T any](list []T, v T, most int) []T {
	if len(list) == most {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, v)
}

// sum returns the recent counts, and the seconds that they cover.
func (w *window) sum() (s sums, seconds float64) {
	for i := range w.recent {
		s.add(&w.recent[i].sums)
		seconds += w.recent[i].length.Seconds()
	}
	return s, seconds
}

// fill fills in the part of an overview about the window's namespace.
func (w *window) fill(o *Overview) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.History = append([]Second{}, w.history...)
	s, seconds := w.sum()
	if seconds == 0 {
		return
	}
	o.PerSecond = Rates{
		Allowed: tenths(float64(s.totals[allowed]) / seconds), Refused: tenths(float64(s.totals[refused]) / seconds),
		Degraded: tenths(float64(s.totals[local]+s.totals[unmetered]) / seconds),
		Local:    tenths(float64(s.totals[local]) / seconds),
		Failed:   tenths(float64(s.totals[failed]+s.totals[noShare]) / seconds),
	}
	ms := func(d time.Duration) float64 { return float64(min(d, s.max)) / 1e6 }
	o.Latency = Latency{P50: ms(s.took.quantile(0.5)), P99: ms(s.took.quantile(0.99)), Max: ms(s.max)}
}

// fillStore fills in the part of an overview about the store.
func (w *window) fillStore(o *Overview) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, seconds := w.sum()
	without := s.totals[local] + s.totals[unmetered] + s.totals[failed]
	decisions := s.totals[allowed] + s.totals[refused] + s.totals[noShare] + without
	o.Store = Store{
		CallsPerDecision: ratio(s.calls, decisions),
		CacheHitRatio:    ratio(s.hits, s.hits+s.misses),
	}
	if decisions > 0 {
		o.Store.Unanswered = min(float64(max(s.unanswered, without))/float64(decisions), 1)
	}
	if seconds > 0 {
		o.Store.ErrorsPerSecond = tenths(float64(s.errors) / seconds)
	}
}

func ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(float64(part)/float64(whole)*1000) / 1000
}

// tenths rounds a rate, because the length of a second is measured only to about a millisecond.
func tenths(x float64) float64 { return math.Round(x*10) / 10 }

// sums returns the counts, and resets the longest decision.
func (s *space) sums() (all sums) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for o, n := range sh.totals {
			all.totals[o] += n
		}
		all.took.add(&sh.took.counts)
		all.max = max(all.max, sh.max)
		sh.max = 0
		sh.mu.Unlock()
	}
	return all
}

// episode is a period in which the store did not answer some decisions. Its beginning and end are logged, with the
// number of decisions, instead of each decision.
type episode struct {
	began            time.Time // zero: no episode
	quiet            int       // seconds without trouble
	degraded, failed uint64
}

// second takes the counts of each second.
func (e *episode) second(log *slog.Logger, now time.Time, degraded, failed uint64) {
	switch {
	case degraded+failed > 0 && e.began.IsZero():
		*e = episode{began: now}
		log.Warn("the store did not answer some decisions in time", slog.Uint64("degraded", degraded),
			slog.Uint64("failed", failed))
	case e.began.IsZero():
		return
	case degraded+failed > 0:
		e.quiet = 0
	default:
		e.quiet++
	}
	e.degraded += degraded
	e.failed += failed
	if e.quiet == lately {
		log.Info("the store answers every decision again", slog.Duration("after",
			now.Add(-lately*time.Second).Sub(e.began)),
			slog.Uint64("degraded", e.degraded), slog.Uint64("failed", e.failed))
		*e = episode{}
	}
}
