package rates

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/clock"
	"github.com/weirlimits/weir/internal/fleet"
)

// Worker is a process that shares rates. Create one with [Join].
type Worker struct {
	cfg    Config
	id     string
	member *fleet.Member[*grants]

	mu     sync.Mutex
	status Status
	share  share
	expiry *time.Timer
	closed bool
}

// share is what the worker may use.
type share struct {
	fleet.Version

	granted    bool    // the grants contain a share of this worker
	rate, safe []int64 // in the order of the worker's budgets
	expires    time.Time
	current    []int64 // as last passed to Granted
}

// usable returns what may be used of a budget.
func (s *share) usable(budget int, now time.Time) int64 {
	if clock.Left(s.expires, now) > 0 {
		return s.rate[budget]
	}
	return min(s.rate[budget], s.safe[budget])
}

// Status is the state of a worker.
type Status struct {
	Worker  string    // its full name
	Workers int       // workers known to be in the fleet; 0 before the first grants
	Epoch   uint64    // of the grants that it follows
	Leads   bool      // it writes the grants
	Granted bool      // it has a valid share; otherwise it has nothing yet, or its safe share
	Contact time.Time // when it last read the grants
	Err     error     // why the last refresh failed; nil if it did not
}

// Join enters a fleet: it writes a first report and reads the grants. The worker has no share until it is granted one.
//
// Errors: [*ConfigError], [*fleet.JoinError].
func Join(ctx context.Context, cfg Config) (*Worker, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	n := len(cfg.Budgets)
	w := &Worker{
		cfg: cfg, id: cfg.Worker + "-" + strings.ToLower(rand.Text()[:8]),
		share: share{rate: make([]int64, n), safe: make([]int64, n), current: make([]int64, n)},
	}
	at := fleet.Place{Registry: cfg.Registry, ID: w.id}
	p := &protocol{w: w, sent: make(map[uint64]time.Time), forgotten: make(map[string]uint64)}
	w.member = fleet.NewMember(at, p)
	w.expiry = time.AfterFunc(time.Hour, w.lapse)
	w.apply(time.Now())
	if err := w.member.Beat(ctx); err != nil {
		w.expiry.Stop()
		_ = w.member.Close() // remove what was written, if anything
		return nil, err
	}
	w.member.Start(ctx, nil)
	return w, nil
}

// Status returns the state of the worker.
func (w *Worker) Status() Status {
	m := w.member.State()
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Worker, s.Leads, s.Err = w.id, m.Leads, m.Err
	s.Granted = !w.closed && clock.Left(w.share.expires, time.Now()) > 0
	return s
}

// SetLimits changes the limits of the budgets, in their order. The worker uses no more than them at once; the fleet
// follows with the next grants.
func (w *Worker) SetLimits(limits []int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, limit := range limits {
		w.cfg.Budgets[i].Limit = limit
		w.share.rate[i], w.share.safe[i] = min(w.share.rate[i], limit), min(w.share.safe[i], limit)
	}
	w.apply(time.Now())
}

// budgets returns the budgets with their limits now.
func (w *Worker) budgets() []Budget {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.cfg.Budgets)
}

// Close leaves the fleet: the worker's shares become 0, and are free for others at once. Call it once.
func (w *Worker) Close() error {
	w.mu.Lock()
	w.closed = true
	w.apply(time.Now())
	w.mu.Unlock()
	err := w.member.Close()
	w.expiry.Stop()
	return err
}

// follow makes the worker use grants from now on. sent is when it sent the report that they answer. It reports whether
// others wait for the worker to confirm a lower share.
func (w *Worker) follow(g *grants, sent time.Time) (lowered bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Contact, w.status.Workers, w.status.Epoch = now, len(g.Workers), g.Epoch
	if g.Compare(w.share.Version) <= 0 {
		return false
	}
	before, n := w.share, len(w.cfg.Budgets)
	w.share = share{
		Version: g.Version, granted: g.Workers[w.id] != nil, current: before.current,
		rate: make([]int64, n), safe: make([]int64, n),
	}
	if mine, capped := g.Workers[w.id], g.capped(); mine != nil {
		if !sent.IsZero() {
			lease := time.Duration(g.LeaseMS) * time.Millisecond
			w.share.expires = sent.Add(lease - lease/20) // clocks run at different speeds
		}
		for i, b := range w.cfg.Budgets {
			if j := slices.Index(g.Budgets, b.Name); j >= 0 {
				w.share.rate[i], w.share.safe[i] = min(at(mine.Rate, j), b.Limit), min(at(mine.Safe, j), b.Limit)
			}
			if capped {
				w.share.rate[i] = min(w.share.rate[i], before.usable(i, now))
				w.share.safe[i] = min(w.share.safe[i], before.safe[i])
			}
		}
	}
	for i, rate := range w.share.rate {
		lowered = lowered || rate < before.rate[i]*9/10
	}
	w.apply(now)
	return lowered
}

// follows returns the version of the grants that the worker's share comes from, or zero if it has none.
func (w *Worker) follows() fleet.Version {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.share.granted {
		return fleet.Version{}
	}
	return w.share.Version
}

// lapse is called when the lease may have ended.
func (w *Worker) lapse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(time.Now())
}

// apply passes the current shares to Granted. The lock is held.
func (w *Worker) apply(now time.Time) {
	for i := range w.share.current {
		if w.share.current[i] = w.share.usable(i, now); w.closed {
			w.share.current[i] = 0
		}
	}
	if left := clock.Left(w.share.expires, now); left > 0 {
		w.expiry.Reset(left)
	}
	w.cfg.Granted(w.share.current)
}
