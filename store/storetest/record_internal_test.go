package storetest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/storetest/internal/env"
	"github.com/weirlimits/weir/store/storetest/internal/trace"
)

// record writes the recorded trace anew, from the reference: go test ./store/storetest -run TestRecord -record.
var record = flag.Bool("record", false, "record the trace anew")

const (
	recordedFile  = "internal/trace/recorded.jsonl"
	recordedSeed  = 18
	recordedCalls = 320
)

// TestRecord checks that the recorded trace is the one that the generator draws, and that it has each kind of answer.
func TestRecord(t *testing.T) {
	t.Parallel()
	g := newDrawer(t)
	var file []byte
	line := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		file = append(append(file, raw...), '\n')
	}
	line(g.limits)
	kinds := map[string]int{}
	for range recordedCalls {
		c := g.draw()
		c.Answer = g.player.Play(&c)
		g.note(&c)
		kinds[c.Answer[0]]++
		line(c)
	}
	for _, kind := range []string{"allowed", "refused", "never", "done", "stale limits", "too many overrides", "overflow", "settled", "expired"} {
		if kinds[kind] == 0 {
			t.Errorf("no call is answered %q: %v", kind, kinds)
		}
	}
	if *record {
		if err := os.WriteFile(recordedFile, file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(recordedFile)
	if err != nil || !bytes.Equal(have, file) {
		t.Errorf("%s is another trace, error %v: record it with -record if the change is intended", recordedFile, err)
	}
}

// drawer draws the calls of a trace: two children of a team of an organization, and two
// entities alone, one of which uses overriding limits.
type drawer struct {
	r      *rand.Rand
	player *trace.Player
	limits map[string]*store.Limit
	epoch  uint64
	own    map[string][]string // the limits of each entity, by their names in the trace
	older  map[string][]string // those before
	since  map[string]uint64   // the epoch of the latest change
	held   [][]trace.Debit     // what takes debited
	ids    []trace.Call        // settles with an id
	over   int
}

var chains = [][]string{{"alice", "team", "org"}, {"bob", "team", "org"}, {"team", "org"}, {"carol"}, {"dora"}}

func newDrawer(t *testing.T) *drawer {
	t.Helper()
	g := &drawer{
		r: rand.New(rand.NewPCG(recordedSeed, 0)), limits: map[string]*store.Limit{}, epoch: 1,
		own: map[string][]string{}, older: map[string][]string{}, since: map[string]uint64{},
	}
	for _, entity := range []string{"alice", "bob", "carol", "dora", "team", "org"} {
		for _, name := range []string{"rpm", "tpm"} {
			g.own[entity] = append(g.own[entity], g.limit(entity, name, 0))
		}
		g.since[entity] = 1
	}
	// All versions are drawn beforehand, because the file begins with them.
	for v := 1; v <= 6; v++ {
		for _, entity := range []string{"alice", "carol", "team"} {
			for _, name := range []string{"rpm", "tpm", "rpd"} {
				g.limit(entity, name, v)
			}
		}
	}
	for v := range store.MaxOverrides + 2 {
		g.limits[fmt.Sprint("over.", v)] = &store.Limit{
			Name: "over", Amount: 1000, Period: 24 * time.Hour, Burst: int64(5000 + v), Override: true,
		}
	}
	g.player = trace.NewPlayer(env.Open(t, t, refHarness(""), env.Noon), g.limits)
	return g
}

// limit draws a version of an entity's limit.
func (g *drawer) limit(entity, name string, version int) string {
	period := []time.Duration{time.Second, 7 * time.Second, time.Minute, time.Hour}[g.r.IntN(4)]
	l := &store.Limit{Name: name, Amount: 1 + g.r.Int64N(100_000), Period: period, Burst: 1000 + g.r.Int64N(100_000)}
	if name == "rpd" {
		l.Period = 24 * time.Hour
	}
	key := fmt.Sprintf("%s.%s.%d", entity, name, version)
	g.limits[key] = l
	return key
}

// draw draws the next call.
func (g *drawer) draw() (c trace.Call) {
	c.Client = g.r.IntN(2)
	waits := []time.Duration{0, time.Millisecond, time.Second, time.Second, time.Minute, time.Hour}
	if longest := waits[g.r.IntN(len(waits))]; longest > 0 {
		c.After = time.Duration(g.r.Int64N(int64(longest))).String()
	}
	switch k := g.r.IntN(24); {
	case k < 5 && len(g.held) > 0:
		g.settle(&c)
	case k == 5 && len(g.ids) > 0:
		again := g.ids[max(0, len(g.ids)-1-g.r.IntN(3))]
		c.Settle, c.ID, c.Ends = again.Settle, again.ID, again.Ends
	case k == 6, k == 11:
		c.Take = []trace.Debit{{Entity: "dora", Charges: []trace.Charge{{
			Limit: fmt.Sprint("over.", g.over%(store.MaxOverrides+2)), Amount: 2500 + g.r.Int64N(2500),
		}}}}
		g.over++
	case k == 7:
		entity := g.change()
		c.Take = []trace.Debit{g.debit(entity, g.own[entity], g.epoch)}
	case k == 8:
		g.take(&c, true)
	case k == 9 && g.r.IntN(3) == 0:
		c.Forget = []string{"alice", "carol"}[g.r.IntN(2)]
	case k == 10 && g.r.IntN(3) == 0:
		c.Take = []trace.Debit{g.debit("dora", g.own["dora"], 1)}
		c.Take[0].Charges[0] = trace.Charge{Limit: g.own["dora"][0], Amount: 1 << 62, Force: true}
	default:
		g.take(&c, false)
	}
	return c
}

// change gives an entity other limits: raised, lowered, faster, slower, one more or one fewer.
func (g *drawer) change() (entity string) {
	entity = []string{"alice", "carol", "team"}[g.r.IntN(3)]
	g.older[entity] = g.own[entity]
	version := 1 + g.r.IntN(6)
	names := [][]string{{"rpm", "tpm"}, {"rpm"}, {"rpm", "tpm", "rpd"}}[g.r.IntN(3)]
	g.own[entity] = nil
	for _, name := range names {
		g.own[entity] = append(g.own[entity], fmt.Sprintf("%s.%s.%d", entity, name, version))
	}
	g.epoch++
	g.since[entity] = g.epoch
	return entity
}

// take draws a take of a chain, with limits that are not the newest ones if stale.
func (g *drawer) take(c *trace.Call, stale bool) {
	chain := chains[g.r.IntN(len(chains))]
	if stale { // a full bucket may be forgotten, and with it that its limits are newer
		chain = []string{[]string{"alice", "carol"}[g.r.IntN(2)]}
		if g.older[chain[0]] == nil || !g.player.Owes(chain[0], c.After) {
			stale = false
		}
	}
	for _, entity := range chain {
		limits, epoch := g.own[entity], g.epoch
		if stale {
			limits, epoch = g.older[entity], g.since[entity]-1
		}
		c.Take = append(c.Take, g.debit(entity, limits, epoch))
	}
}

func (g *drawer) debit(entity string, limits []string, epoch uint64) trace.Debit {
	d := trace.Debit{Entity: entity, Epoch: epoch}
	for _, l := range limits {
		burst := g.limits[l].Burst
		ch := trace.Charge{Limit: l, Amount: g.r.Int64N(burst/3 + 1)}
		switch g.r.IntN(12) {
		case 0:
			ch.Amount = 0
		case 1:
			ch.Force = true
		case 2:
			ch.Shadow = true
		case 3:
			ch.Amount = burst
		case 4:
			if g.r.IntN(4) == 0 {
				ch.Amount = burst + 1
			}
		}
		d.Charges = append(d.Charges, ch)
	}
	return d
}

// settle draws a settle of what a take holds: less, all of it, or more.
func (g *drawer) settle(c *trace.Call) {
	i := g.r.IntN(len(g.held))
	all := g.r.IntN(2) == 0
	for _, d := range g.held[i] {
		d.Charges = append([]trace.Charge(nil), d.Charges...)
		for k := range d.Charges {
			ch := &d.Charges[k]
			if !all {
				ch.Amount = g.r.Int64N(ch.Amount + 1)
			}
			if ch.Force, ch.Shadow = false, false; all || g.r.IntN(3) > 0 {
				ch.Amount = -ch.Amount
			}
		}
		c.Settle = append(c.Settle, d)
	}
	g.held = append(g.held[:i], g.held[i+1:]...)
	if g.r.IntN(2) == 0 {
		c.ID = fmt.Sprint("settle-", len(g.ids))
		c.Ends = (g.player.Clock.Now().Sub(env.Noon) + time.Hour + time.Duration(g.r.Int64N(int64(6*time.Hour)))).String()
		g.ids = append(g.ids, *c)
	}
}

// note remembers what a take debited.
func (g *drawer) note(c *trace.Call) {
	if c.Take == nil || c.Answer[0] != "allowed" {
		return
	}
	g.held = append(g.held, c.Take)
}
