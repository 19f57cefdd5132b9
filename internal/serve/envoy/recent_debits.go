package envoy

import (
	"sync"
	"time"

	"github.com/weirlimits/weir"
)

const (
	// recent is how long what descriptors take is remembered, at least; at most twice as long.
	recent = 5 * time.Minute
	// maxTaken bounds what is remembered of a namespace in that time. If there is more, the oldest half is forgotten.
	maxTaken = 1 << 14
)

// recentDebits is what the descriptors of a namespace took lately, by bucket and limit: what negative hits may return.
// What is forgotten stays debited. It is safe for concurrent use.
type recentDebits struct {
	mu          sync.Mutex
	since       time.Time // when now began
	now, before map[debitKey]int64
}

// debitKey is a limit of a bucket.
type debitKey struct {
	entity, resource string
	limit            string     // "": each limit that counts requests
	override         weir.Limit // zero: the limit in force
}

// each calls f with the limits that a request names and how many tokens it has for each.
func (a *request) each(f func(of debitKey, n int64)) {
	of := debitKey{entity: a.req.Entity, resource: a.req.Resource}
	if len(a.req.Limits) > 0 {
		of.override = a.req.Limits[0]
	}
	if a.req.Requests != 0 {
		f(of, a.req.Requests)
	}
	for of.limit = range a.req.Tokens {
		f(of, a.req.Tokens[of.limit])
	}
}

// rotate forgets what is not recent. The caller holds the lock.
func (r *recentDebits) rotate() {
	age := time.Since(r.since)
	if age < recent && len(r.now) < maxTaken {
		return
	}
	r.before, r.now, r.since = r.now, make(map[debitKey]int64), time.Now()
	if age >= 2*recent {
		r.before = nil
	}
}

// add remembers what a request has debited.
func (r *recentDebits) add(a *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotate()
	a.each(func(of debitKey, n int64) {
		if n > 0 {
			r.now[of] += n
		}
	})
}

// bound lowers what a request returns to what was taken lately and not returned since. It reports whether that is all,
// and whether it is anything.
func (r *recentDebits) bound(a *request) (all, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotate()
	all = true
	a.each(func(of debitKey, n int64) {
		old := min(-n, r.before[of])
		n = min(-n, old+r.now[of])
		if old > 0 {
			r.before[of] -= old
		}
		if n > old {
			r.now[of] -= n - old
		}
		some = some || n > 0
		if of.limit == "" {
			all, a.req.Requests = all && n == -a.req.Requests, -n
			return
		}
		all, a.req.Tokens[of.limit] = all && n == -a.req.Tokens[of.limit], -n
	})
	return all, some
}
