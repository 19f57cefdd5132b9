// Package trace replays one recorded trace on every store: the same calls at the same times must get the same answers,
// to the millitoken and the nanosecond.
package trace

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

//go:embed recorded.jsonl
var recorded []byte

// Suites returns the suites of this package.
func Suites() []env.Suite {
	return []env.Suite{{Name: "trace", Scenarios: []env.Scenario{
		{Name: "recorded", Need: env.Caps{HandClock: true}, Run: env.OnStore(replay)},
	}}}
}

// Trace is a recorded trace.
type Trace struct {
	Limits map[string]*store.Limit // by the names that charges use: the limit's name and its version
	Calls  []Call
}

// Call is one call of a trace, a line of its file. Exactly one of Take, Settle and Forget is set.
type Call struct {
	After  string  `json:"after,omitempty"` // how long after the previous call
	Client int     `json:"client,omitempty"`
	Take   []Debit `json:"take,omitempty"`
	Settle []Debit `json:"settle,omitempty"`
	ID     string  `json:"id,omitempty"`   // of the settle
	Ends   string  `json:"ends,omitempty"` // how long after noon the settle expires
	Forget string  `json:"forget,omitempty"`
	// Answer is what every store must answer. It has the decision, and for each charge what may be debited afterwards;
	// then what is outstanding in the buckets concerned.
	Answer []string `json:"answer"`
}

// Debit is a debit of a call.
type Debit struct {
	Entity  string   `json:"entity"`
	Epoch   uint64   `json:"epoch"`
	Charges []Charge `json:"charges"`
}

// Charge is a charge of a debit, in millitokens.
type Charge struct {
	Limit  string `json:"limit"` // in Trace.Limits
	Amount int64  `json:"amount,omitempty"`
	Force  bool   `json:"force,omitempty"`
	Shadow bool   `json:"shadow,omitempty"`
}

// Recorded returns the recorded trace. The first line of its file has the limits.
func Recorded() (tr Trace, err error) {
	dec := json.NewDecoder(bytes.NewReader(recorded))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&tr.Limits); err != nil {
		return tr, err
	}
	for dec.More() {
		var c Call
		if err := dec.Decode(&c); err != nil {
			return tr, err
		}
		tr.Calls = append(tr.Calls, c)
	}
	return tr, nil
}

// replay makes the recorded calls. The store may have two clients, which take turns.
//
// What may differ between stores is left out of the answers, or does not occur in the trace:
//
//   - A full bucket carries no information: a store may forget it at once or later, and with it its counters, its
//     epoch and its birth.
//   - A take of more than a burst, which never fits, may return the levels that were seen last.
//   - A store that decides buckets in several steps need not ask the others after one has refused. It then returns
//     their levels as the client saw them last, and they follow a change of limits when they are asked next.
func replay(e *env.Env) {
	tr, err := Recorded()
	if err != nil || len(tr.Calls) == 0 {
		e.Fatalf("%d recorded calls, error %v", len(tr.Calls), err)
	}
	p := NewPlayer(e, tr.Limits)
	for i := range tr.Calls {
		c := &tr.Calls[i]
		if got := p.Play(c); !slices.Equal(got, c.Answer) {
			e.Fatalf("call %d: %+v\ngot  %q", i+1, *c, got)
		}
	}
}

// Player makes calls on a store.
type Player struct {
	*env.Env

	limits  map[string]*store.Limit
	clients [2]*env.Env
	seen    map[string]int // the client that changed or saw an entity's bucket last, from 1; 0: unknown
}

// NewPlayer returns a player with two clients, if the store can have them.
func NewPlayer(e *env.Env, limits map[string]*store.Limit) *Player {
	p := &Player{Env: e, limits: limits, clients: [2]*env.Env{e, e}, seen: map[string]int{}}
	if e.Harness.Peer != nil {
		p.clients[1] = e.Peer()
	}
	return p
}

// Play makes a call and returns the answer.
func (p *Player) Play(c *Call) []string {
	p.Helper()
	p.Clock.Advance(p.span(c.After))
	e := p.clients[c.Client]
	defer e.Quiesce()
	var (
		out    store.Outcome
		err    error
		debits []store.Debit
	)
	switch {
	case c.Forget != "":
		err = e.Store.Forget(e.Context(), env.Bucket(c.Forget, "api"))
		debits = []store.Debit{{Bucket: env.Bucket(c.Forget, "api")}}
	case c.Settle != nil:
		debits = p.debits(c.Settle)
		s := store.Settle{Debits: debits, ID: c.ID}
		if c.ID != "" {
			s.Expires = env.Noon.Add(p.span(c.Ends))
		}
		out, err = e.Store.Settle(e.Context(), s)
	default:
		debits = p.debits(c.Take)
		out, err = e.Store.Take(e.Context(), store.Take{Debits: debits})
	}
	answer := decided(c, debits, out, err)
	refused := answer[0] == "refused"
	unseen := func(d Debit) bool { return p.seen[d.Entity] != c.Client+1 }
	if refused && len(debits) > 1 && slices.ContainsFunc(c.Take, unseen) {
		answer = answer[:1]
	}
	for _, d := range debits {
		switch {
		case c.Take == nil:
			p.seen[d.Bucket.Entity] = 0
		case err == nil && (out.Allowed || refused && len(debits) == 1):
			p.seen[d.Bucket.Entity] = c.Client + 1
		}
	}
	if err == nil && c.Forget == "" && !out.At.Equal(e.Clock.Now()) {
		answer = append(answer, fmt.Sprintf("at %v, not %v", out.At, e.Clock.Now()))
	}
	for _, d := range debits {
		answer = append(answer, owed(e, d.Bucket)...)
	}
	return answer
}

func (p *Player) span(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		p.Fatalf("%v", err)
	}
	return d
}

func (p *Player) debits(of []Debit) []store.Debit {
	all := make([]store.Debit, len(of))
	for i, d := range of {
		all[i] = store.Debit{Bucket: env.Bucket(d.Entity, "api"), Epoch: d.Epoch}
		for _, c := range d.Charges {
			all[i].Charges = append(all[i].Charges, store.Charge{
				Limit: p.limits[c.Limit], Amount: c.Amount, Force: c.Force, Shadow: c.Shadow,
			})
		}
	}
	return all
}

// errorNames are the errors that a trace may hold. Any other fails the replay.
var errorNames = map[error]string{
	store.ErrStaleLimits: "stale limits", store.ErrTooManyOverrides: "too many overrides",
	store.ErrOverflow: "overflow", store.ErrSettled: "settled", store.ErrExpired: "expired",
}

// decided formats an outcome.
func decided(c *Call, debits []store.Debit, out store.Outcome, err error) []string {
	for known, name := range errorNames {
		if errors.Is(err, known) {
			return []string{name}
		}
	}
	switch {
	case err != nil:
		return []string{fmt.Sprint("error: ", err)}
	case c.Take == nil:
		return []string{"done"}
	}
	var charges []store.Charge
	for _, d := range debits {
		charges = append(charges, d.Charges...)
	}
	if len(charges) != len(out.Levels) {
		return []string{fmt.Sprintf("%d levels of %d charges", len(out.Levels), len(charges))}
	}
	answer := []string{"refused"}
	if out.Allowed {
		answer[0] = "allowed"
	}
	for i, l := range out.Levels {
		if ch := charges[i]; !ch.Shadow && !ch.Force && ch.Amount > l.Limit.Burst {
			return []string{"never"}
		}
		text := fmt.Sprintf("%s room %d", l.Limit.Name, reckon.Room(l.Limit, l.Level, out.At))
		if l.Refused {
			after, possible := env.RetryAfter(out, i, charges[i].Amount)
			text += fmt.Sprintf(" refused retry %v %t", after, possible)
		}
		answer = append(answer, text)
	}
	return answer
}

// owed returns what is outstanding of each limit of a bucket, in the limit's present form, sorted.
func owed(e *env.Env, b store.Bucket) (lines []string) {
	st, now := e.State(b)
	for _, m := range st.Limits {
		if n := reckon.Outstanding(m.Limit, m.Level, now); n > 0 {
			l := m.Limit
			lines = append(lines, fmt.Sprintf(
				"%s %s owes %d of %d at %d/%v", b.Entity, l.Name, n, l.Burst, l.Amount, l.Period,
			))
		}
	}
	slices.Sort(lines)
	return lines
}

// Owes reports whether anything will be outstanding in an entity's bucket after the given time.
func (p *Player) Owes(entity, after string) bool {
	p.Helper()
	st, now := p.State(env.Bucket(entity, "api"))
	for _, m := range st.Limits {
		if reckon.Outstanding(m.Limit, m.Level, now.Add(p.span(after))) > 0 {
			return true
		}
	}
	return false
}
