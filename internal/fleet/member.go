package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Format is the format of the grants that this version writes. Members refuse grants of a newer format: they neither
// follow nor replace them.
const Format = 1

// Head begins the grants of every fleet.
type Head struct {
	Version

	Format int    `json:"format,omitempty"` // 0: written before grants had a format, and the same as 1
	Leader string `json:"leader"`           // "" if it has resigned
}

// Top returns the head. It implements [Grants].
func (h *Head) Top() *Head { return h }

// Grants is a pointer to a struct that embeds [Head]: what the leader writes for all.
type Grants interface{ Top() *Head }

// Protocol is what a process reports, follows and, if it leads, issues in one kind of fleet. A [Member] calls its
// methods one at a time.
type Protocol[G Grants] interface {
	// Beat returns the time between two beats, and whether the process or one that it leads waits for the next.
	Beat() (beat time.Duration, hurry bool)
	// Report returns this process's report, the seq-th.
	Report(ctx context.Context, seq uint64) (any, error)
	// None returns grants of nothing, into which those of a record are decoded.
	None() G
	// Follow makes the process use grants that were read or written.
	Follow(ctx context.Context, g G)
	// Reports reads all members' reports, and returns the highest epoch that one confirms.
	Reports(ctx context.Context) (epoch uint64, err error)
	// TakeOver begins to lead, after grants that another leader wrote, or whose outcome was unknown.
	TakeOver(g G)
	// Issue returns the grants that follow from the reports just read.
	Issue(h Head) G
	// Commit records that grants were published.
	Commit(ctx context.Context, g G) error
}

// Place is where a member writes.
type Place struct {
	Registry Registry
	// ID names the process: nobody else writes its report.
	ID string
	// Log receives a message if the registry has lost grants. Defaults to discarding it.
	Log *slog.Logger
}

// Member is a process in a fleet. Create one with [NewMember].
type Member[G Grants] struct {
	Place

	protocol Protocol[G]

	// Used only by the goroutine that beats, and after it has ended.
	seq     uint64
	written string // version of the own report
	term    term
	known   G // the newest grants
	newest  Version
	leading bool // the protocol's account is that of the newest grants

	mu     sync.Mutex
	status State

	stop context.CancelFunc
	done sync.WaitGroup
}

// State is the state of a member.
type State struct {
	Leads bool  // it writes the grants
	Err   error // why the last beat failed; nil if it did not
}

// JoinError reports that a process could not take part, because the records cannot be read or written.
type JoinError struct {
	Op  string // "write report", "read grants", …
	Err error
}

// Error returns what failed, and what is needed.
func (e *JoinError) Error() string {
	return fmt.Sprintf(
		"join fleet: %s: %v (the place of the records must exist and be readable, writable and listable)", e.Op, e.Err,
	)
}

// Unwrap returns the cause.
func (e *JoinError) Unwrap() error { return e.Err }

// minTimeout is for fleets that beat faster than their registry's slowest answers.
const minTimeout = time.Second

// hurried is how many beats of one that waits take as long as one of others.
const hurried = 5

// NewMember returns a member that does nothing before [Member.Beat] or [Member.Start].
func NewMember[G Grants](at Place, protocol Protocol[G]) *Member[G] {
	at.Log = cmp.Or(at.Log, slog.New(slog.DiscardHandler))
	return &Member[G]{Place: at, protocol: protocol, term: term{id: at.ID}, known: protocol.None()}
}

// State returns the state of the member.
func (m *Member[G]) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// Start beats until [Member.Close]. It calls after with the result of each beat, if it is not nil.
func (m *Member[G]) Start(ctx context.Context, after func(error)) {
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(func() {
		timer := time.NewTimer(m.pause())
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			if err := m.Beat(ctx); after != nil && ctx.Err() == nil {
				after(err)
			}
			timer.Reset(m.pause())
		}
	})
}

// pause returns the time to the next beat.
func (m *Member[G]) pause() time.Duration {
	d, hurry := m.protocol.Beat()
	if hurry {
		d /= hurried
	}
	return d*9/10 + rand.N(d/5)
}

// Close stops the beats, lets another process lead at once, and removes the report.
func (m *Member[G]) Close() error {
	if m.stop != nil {
		m.stop()
		m.done.Wait()
	}
	beat, _ := m.protocol.Beat()
	ctx, cancel := context.WithTimeout(context.Background(), max(beat, minTimeout))
	defer cancel()
	err := m.resign(ctx)
	if gone := m.Registry.Delete(ctx, ReportPrefix+m.ID); gone != nil {
		err = errors.Join(err, fmt.Errorf("leave fleet: remove report: %w", gone))
	}
	return err
}

func (m *Member[G]) resign(ctx context.Context) error {
	if !m.leading {
		return nil
	}
	h := m.known.Top()
	h.Leader = ""
	h.Seq++
	_, err := m.Registry.Put(ctx, GrantsName, Encode(m.known), m.term.own)
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("leave fleet: resign: %w", err)
	}
	return nil
}

// Beat writes the report, reads the grants, and writes them if this process must lead. Do not call it after Start.
func (m *Member[G]) Beat(ctx context.Context) error {
	beat, _ := m.protocol.Beat()
	ctx, cancel := context.WithTimeout(ctx, max(beat, minTimeout))
	defer cancel()
	leads, err := m.beat(ctx, beat)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Err = err
	if leads != nil {
		m.status.Leads = *leads
	}
	return err
}

// beat returns whether this process leads; nil if it has not found out.
func (m *Member[G]) beat(ctx context.Context, beat time.Duration) (leads *bool, err error) {
	if err := m.report(ctx); err != nil {
		return nil, err
	}
	rec, err := m.Registry.Get(ctx, GrantsName)
	if err != nil {
		return nil, &JoinError{"read grants", err}
	}
	g := m.protocol.None()
	if err := DecodeGrants(rec, g); err != nil {
		return nil, &JoinError{"read grants", err}
	}
	if g.Top().Compare(m.newest) < 0 {
		// The registry has lost some, as after a restore. Their leader publishes them again, because it has the
		// newest; without it another does, after all others have confirmed what they follow.
		if rec.Version != m.term.last {
			m.Log.WarnContext(ctx, "the registry has lost grants: they will be written again")
		}
		g, m.leading = m.known, false
	}
	m.follow(ctx, g)
	if m.term.read(rec.Version, g.Top().Leader, beat) {
		return m.lead(ctx, rec, g, beat)
	}
	m.leading = false
	return new(bool), nil
}

func (m *Member[G]) follow(ctx context.Context, g G) {
	m.known, m.newest = g, g.Top().Version
	m.protocol.Follow(ctx, g)
}

func (m *Member[G]) report(ctx context.Context) error {
	m.seq++
	r, err := m.protocol.Report(ctx, m.seq)
	if err != nil {
		return err
	}
	name, value := ReportPrefix+m.ID, Encode(r)
	written, err := m.Registry.Put(ctx, name, value, m.written)
	if errors.Is(err, ErrConflict) {
		// An answer was lost, or the process was forgotten.
		var rec Record
		if rec, err = m.Registry.Get(ctx, name); err == nil {
			written, err = m.Registry.Put(ctx, name, value, rec.Version)
		}
	}
	if err != nil {
		return &JoinError{"write report", err}
	}
	m.written = written
	return nil
}

// lead writes the grants that follow g, on condition that the record is still rec.
func (m *Member[G]) lead(ctx context.Context, rec Record, g G, beat time.Duration) (leads *bool, err error) {
	confirmed, err := m.protocol.Reports(ctx)
	if err != nil {
		return nil, &JoinError{"read reports", err}
	}
	epoch := g.Top().Epoch
	if !m.leading || m.term.own != rec.Version || confirmed > epoch {
		epoch = max(epoch, confirmed) + 1 // newer than any in use, even if the registry has lost some
		m.protocol.TakeOver(g)
	}
	m.leading = false // if the outcome of the write is unknown, the next read will show
	next := m.protocol.Issue(Head{Version{epoch, g.Top().Seq + 1}, Format, m.ID})
	version, err := m.Registry.Put(ctx, GrantsName, Encode(next), rec.Version)
	switch {
	case errors.Is(err, ErrConflict):
		return new(bool), nil // another process leads
	case err != nil:
		return new(bool), &JoinError{"write grants", err}
	}
	m.leading = true
	m.term.wrote(version, beat)
	err = m.protocol.Commit(ctx, next)
	m.follow(ctx, next)
	return new(true), err
}

// term is what a process has seen of who writes the grants. Their leader's writes also renew its lease. Leaders write
// on condition that the record is still as they read it, so if two believe that they lead, one fails.
type term struct {
	id string

	own      string // version of its last write
	last     string // version when last read
	changed  time.Time
	patience time.Duration
}

// read takes in the grants' version, and the leader that they name. It reports whether this process must write the next
// ones: it leads, nobody does, or the leader has not written for two and a half to three and a half beats, at random,
// so that not all others try at once.
func (t *term) read(version, leader string, beat time.Duration) bool {
	if version != t.last || t.patience == 0 {
		t.wait(version, beat)
	}
	return leader == "" || leader == t.id || time.Since(t.changed) >= t.patience
}

// wrote takes in that this process has written the grants.
func (t *term) wrote(version string, beat time.Duration) {
	t.own = version
	t.wait(version, beat)
}

func (t *term) wait(version string, beat time.Duration) {
	t.last, t.changed, t.patience = version, time.Now(), beat*5/2+rand.N(beat)
}

// Decode reads a record into v, which stays as it is if there is none.
func Decode(r Record, v any) error {
	if r.Version == "" {
		return nil
	}
	if err := json.Unmarshal(r.Value, v); err != nil {
		return fmt.Errorf("%s is not a fleet's record: %w", r.Name, err)
	}
	return nil
}

// Reports returns the reports of a fleet's members, by ID.
func Reports[R any](ctx context.Context, in Registry) (map[string]*R, error) {
	recs, err := in.List(ctx, ReportPrefix)
	if err != nil {
		return nil, err
	}
	reports := make(map[string]*R, len(recs))
	for _, rec := range recs {
		r := new(R)
		if err := Decode(rec, r); err != nil {
			return nil, err
		}
		reports[strings.TrimPrefix(rec.Name, ReportPrefix)] = r
	}
	return reports, nil
}

// DecodeGrants reads the record of grants into g, like [Decode]. It refuses grants of a newer format.
func DecodeGrants(r Record, g Grants) error {
	if err := Decode(r, g); err != nil {
		return err
	}
	if f := g.Top().Format; f > Format {
		return fmt.Errorf("%s has format %d, written by a newer version of weir: this one knows %d", r.Name, f, Format)
	}
	return nil
}

// Encode returns the text of a record: v consists of numbers, strings, and slices and maps of them.
func Encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
