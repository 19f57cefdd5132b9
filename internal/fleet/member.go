package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Member is a worker in a fleet. Create one with [Join].
type Member struct {
	cfg Config
	id  string

	// Used only by the running goroutine, by Join before it and by Close after it.
	refresh time.Duration // at present: it grows with the fleet
	seq     uint64
	sent    map[uint64]time.Time // when the reports were sent that grants may still answer
	written string               // version of the own report
	term    Term[string]
	ledger  *ledger // while leading
	hurry   bool    // new workers are waiting
	lowered bool    // others are waiting for this worker to confirm a lower share

	mu      sync.Mutex
	status  Status
	share   share
	expiry  *time.Timer
	closed  bool
	current []int64

	stop context.CancelFunc
	done chan struct{}
}

// share is what the worker may use.
type share struct {
	Version
	rate, safe []int64 // in the order of the worker's budgets
	expires    time.Time
}

// Status is the state of a member.
type Status struct {
	Worker  string    // its full name
	Workers int       // workers known to be in the fleet; 0 before the first grants
	Epoch   uint64    // of the grants that it follows
	Leads   bool      // it writes the grants
	Granted bool      // it has a valid share; otherwise it has nothing yet, or its safe share
	Contact time.Time // when it last read the grants
	Err     error     // why the last refresh failed; nil if it did not
}

// Join enters a fleet: it writes a first report and reads the grants. The member has no share until it is granted one.
//
// Errors: [*ConfigError], [*JoinError].
func Join(ctx context.Context, cfg Config) (*Member, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	m := &Member{
		cfg: cfg, id: cfg.Worker + "-" + strings.ToLower(rand.Text()[:8]), refresh: cfg.Refresh,
		sent: make(map[uint64]time.Time), done: make(chan struct{}), current: make([]int64, len(cfg.Budgets)),
	}
	m.status.Worker = m.id
	m.share.rate, m.share.safe = make([]int64, len(cfg.Budgets)), make([]int64, len(cfg.Budgets))
	m.term.ID = m.id
	m.expiry = time.AfterFunc(time.Hour, m.lapse)
	m.apply(time.Now())
	if err := m.cycle(ctx); err != nil {
		m.expiry.Stop()
		_ = m.drop(ctx) // remove what was written, if anything
		return nil, err
	}
	var running context.Context
	running, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go m.run(running)
	return m, nil
}

// Status returns the state of the member.
func (m *Member) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Granted = !m.closed && time.Now().Before(m.share.expires)
	return s
}

// Close leaves the fleet: the member's shares become 0, and are free for others at once. It is idempotent.
func (m *Member) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		<-m.done
		return nil
	}
	m.closed = true
	m.apply(time.Now())
	m.mu.Unlock()
	m.stop()
	<-m.done
	m.expiry.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.Refresh)
	defer cancel()
	return errors.Join(m.resign(ctx), m.drop(ctx))
}

func (m *Member) drop(ctx context.Context) error {
	if err := m.cfg.Registry.Delete(ctx, reportPrefix+m.id); err != nil {
		return fmt.Errorf("leave fleet: remove report: %w", err)
	}
	return nil
}

func (m *Member) run(ctx context.Context) {
	defer close(m.done)
	timer := time.NewTimer(m.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := m.cycle(ctx)
		m.mu.Lock()
		m.status.Err = err
		m.mu.Unlock()
		timer.Reset(m.pause())
	}
}

// pause returns the time to the next refresh: shorter for a worker that waits, and for its leader.
func (m *Member) pause() time.Duration {
	d := m.refresh
	if m.hurry {
		d /= hurried
	}
	return d*9/10 + mrand.N(d/5)
}

// cycle is one refresh: report, read the grants, and write them if this worker must lead.
func (m *Member) cycle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(m.refresh, minTimeout))
	defer cancel()
	if err := m.report(ctx); err != nil {
		return &JoinError{"write report", err}
	}
	rec, err := m.cfg.Registry.Get(ctx, grantsName)
	if err != nil {
		return &JoinError{"read grants", err}
	}
	g, err := decode[grants](rec)
	if err != nil {
		return &JoinError{"read grants", err}
	}
	m.adopt(g)
	m.hurry = m.lowered || m.waits(g)
	if !m.term.Read(rec.Version, g.Leader, g.Epoch, m.patience(), m.refresh) {
		m.setLeads(false)
		m.ledger = nil
		return nil
	}
	return m.lead(ctx, rec, g)
}

// waits reports whether the worker has not been granted anything yet, or may not have been counted yet.
func (m *Member) waits(g *grants) bool {
	if len(m.cfg.Budgets) == 0 {
		return m.seq <= 2*hurried
	}
	w := g.Workers[m.id]
	return w == nil || !slices.ContainsFunc(w.Rate, func(rate int64) bool { return rate > 0 })
}

// hurried is how many refreshes of one that waits take as long as one of others.
const hurried = 5

// minTimeout is for fleets that refresh faster than their coordinator's slowest answers.
const minTimeout = time.Second

// patience is how long a leader may not write before it is replaced.
func (m *Member) patience() time.Duration { return m.refresh * 5 / 2 }

func (m *Member) report(ctx context.Context) error {
	now := time.Now()
	m.seq++
	for seq, t := range m.sent {
		if now.Sub(t) > 2*leaseRefreshes*m.refresh {
			delete(m.sent, seq)
		}
	}
	m.sent[m.seq] = now
	r := report{Seq: m.seq, Ack: m.share.Version, Budgets: make([]demand, len(m.cfg.Budgets))}
	for i, b := range m.cfg.Budgets {
		want, used := m.cfg.Demand(i)
		r.Budgets[i] = demand{b.Name, b.Limit, want, used}
	}
	name := reportPrefix + m.id
	written, err := m.cfg.Registry.Put(ctx, name, encode(r), m.written)
	if errors.Is(err, ErrConflict) {
		// An answer was lost, or the worker was forgotten: no other process writes this record.
		var rec Record
		if rec, err = m.cfg.Registry.Get(ctx, name); err == nil {
			written, err = m.cfg.Registry.Put(ctx, name, encode(r), rec.Version)
		}
	}
	if err == nil {
		m.written = written
	}
	return err
}

// adopt makes the worker follow the grants from now on.
func (m *Member) adopt(g *grants) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Contact, m.status.Workers, m.status.Epoch = now, g.workers(), g.Epoch
	m.lowered = false
	m.refresh = max(m.cfg.Refresh, time.Duration(g.workers())*m.cfg.Each)
	if g.Compare(m.share.Version) <= 0 {
		return
	}
	before := m.share.rate
	m.share = share{
		Version: g.Version, rate: make([]int64, len(m.cfg.Budgets)), safe: make([]int64, len(m.cfg.Budgets)),
	}
	if w := g.Workers[m.id]; w != nil {
		if sent, ok := m.sent[w.Seq]; ok {
			lease := time.Duration(g.LeaseMS) * time.Millisecond
			m.share.expires = sent.Add(lease - lease/20) // clocks run at different speeds
		}
		for i, b := range m.cfg.Budgets {
			for j, name := range g.Budgets {
				if name == b.Name {
					m.share.rate[i], m.share.safe[i] = min(at(w.Rate, j), b.Limit), min(at(w.Safe, j), b.Limit)
				}
			}
		}
	}
	for i, rate := range m.share.rate {
		m.lowered = m.lowered || rate < before[i]*9/10
	}
	m.apply(now)
}

// lapse is called when the lease may have ended.
func (m *Member) lapse() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.apply(time.Now())
}

// apply passes the current shares to Granted. The lock is held.
func (m *Member) apply(now time.Time) {
	for i := range m.current {
		switch {
		case m.closed:
			m.current[i] = 0
		case now.Before(m.share.expires):
			m.current[i] = m.share.rate[i]
		default:
			m.current[i] = min(m.share.rate[i], m.share.safe[i])
		}
	}
	if left := m.share.expires.Sub(now); left > 0 {
		m.expiry.Reset(left)
	}
	if m.cfg.Granted != nil {
		m.cfg.Granted(m.current)
	}
}
