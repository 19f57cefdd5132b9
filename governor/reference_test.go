package governor_test

import (
	"math"
	"math/rand/v2"
	"slices"
)

// reference simulates the S3-coordinated rate limiter of a public bulk executor: workers report what they consumed, an
// aggregator sums it up, and each worker scales its own rate by limit over sum. Demand is unlimited unless set. Times are
// in tenths of a second.
type reference struct {
	limit, workerMax float64
	rng              *rand.Rand
	workers          []*refWorker
	dead             func() bool // whether the aggregator is dead
	died             bool
	nextSum          int
	summary          float64 // sum of rates
	have             bool
	admitted         []float64 // per tenth of a second
}

type refWorker struct {
	joins, next, synced          int
	rate, tokens, used, usedThen float64
	reported                     float64
	demand                       func(at int) float64
}

func newReference(limit float64) *reference {
	return &reference{limit: limit, workerMax: 500, rng: rand.New(rand.NewPCG(1, 2)), dead: func() bool { return false }}
}

func (r *reference) join(n, at int, demand func(int) float64) {
	for range n {
		rate := max(1, min(r.workerMax, r.limit/10))
		r.workers = append(r.workers, &refWorker{joins: at, next: at, synced: -1, rate: rate, tokens: rate, demand: demand})
	}
}

func (r *reference) period() int { return int(math.Round(50 * (0.9 + 0.2*r.rng.Float64()))) }

func (r *reference) run(tenths int) {
	for at := range tenths {
		sum := 0.0
		for _, w := range r.workers {
			if at < w.joins {
				continue
			}
			w.tokens = min(2*w.rate, w.tokens+w.rate/10)
			if use := min(w.tokens, w.demand(at)); use > 0 {
				sum += use
				w.used += use
				w.tokens -= use
			}
			if at >= w.next {
				r.sync(w, at)
			}
		}
		r.admitted = append(r.admitted, sum)
		if r.died = r.died || r.have && r.dead(); at >= r.nextSum && !r.died {
			r.nextSum = at + r.period()
			r.summary, r.have = 0, true
			for _, w := range r.workers {
				if at >= w.joins {
					r.summary += w.reported
				}
			}
		}
	}
}

func (r *reference) sync(w *refWorker, at int) {
	if w.synced >= 0 {
		w.reported = (w.used - w.usedThen) * 10 / float64(at-w.synced)
	}
	w.synced, w.usedThen, w.next = at, w.used, at+r.period()
	if !r.have {
		return
	}
	factor := 1.0
	if r.summary > 0 {
		factor = r.limit / r.summary
	}
	rate := 0.6*w.rate + 0.4*min(r.workerMax, factor*w.rate)
	if rate < 1 {
		return // its setter refuses, and the worker keeps its rate
	}
	w.tokens *= rate / w.rate
	w.rate = rate
}

// peak returns the busiest second from the given time on, and average the mean admitted per second, both as fractions of
// the limit.
func (r *reference) peak(from int) float64 {
	var most float64
	for i := from; i+10 <= len(r.admitted); i++ {
		most = max(most, total(r.admitted[i:i+10]))
	}
	return most / r.limit
}

func (r *reference) average(from, to int) float64 {
	return total(r.admitted[from:to]) * 10 / float64(to-from) / r.limit
}

func total(all []float64) (sum float64) {
	for x := range slices.Values(all) {
		sum += x
	}
	return sum
}
