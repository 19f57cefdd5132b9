package traffic

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

//go:embed scenarios/*.yaml
var files embed.FS

// Loop is how callers are driven.
type Loop string

// In an Open loop, calls are due at times that do not depend on the answers; in a Closed loop, each user waits for an
// answer first.
const (
	Open   Loop = "open"
	Closed Loop = "closed"
)

// Scenario describes which entities request what, how often, and under which limits.
type Scenario struct {
	Name   string `yaml:"-" json:"name"`
	About  string `yaml:"about" json:"about"`
	Demand `yaml:",inline"`
	// Bursts makes calls due together instead of evenly.
	Bursts    *Bursts  `yaml:"bursts" json:"bursts,omitempty"`
	Entities  []Group  `yaml:"entities" json:"entities"`
	Resources []string `yaml:"resources" json:"resources"` // all equally often
	Calls     []Kind   `yaml:"calls" json:"calls"`
	// Limits is a manifest without a namespace.
	Limits map[string]any `yaml:"limits" json:"limits"`

	text []byte
}

// Demand is how many users call, and how often.
type Demand struct {
	Loop Loop `yaml:"loop" json:"loop"`
	// Users make the calls, each pausing for Wait between calls; in an open loop they determine how often calls are
	// due.
	Users int   `yaml:"users" json:"users"`
	Wait  Range `yaml:"wait" json:"wait"`
	// Rate is how many calls per second are due in an open loop. Defaults to Users divided by the mean of Wait.
	Rate float64 `yaml:"rate" json:"rate,omitempty"`
	// For is the length of a run, and WarmUp the length of the uncounted calls before it.
	For    Span `yaml:"for" json:"for"`
	WarmUp Span `yaml:"warm_up" json:"warm_up"`
	// Shape names the shape in Shapes to follow; "": none, the number of users is constant.
	Shape  string             `yaml:"shape" json:"shape,omitempty"`
	Shapes map[string][]Stage `yaml:"shapes" json:"shapes,omitempty"`
}

// Stage adds or removes users, Spawn per second, until there are Users of them.
type Stage struct {
	For   Span    `yaml:"for" json:"for"`
	Users int     `yaml:"users" json:"users"`
	Spawn float64 `yaml:"spawn" json:"spawn"`
}

// Bursts are Calls due at once, a fifth into each period of length Every.
type Bursts struct {
	Every Span `yaml:"every" json:"every"`
	Calls int  `yaml:"calls" json:"calls"`
}

// first is when the first burst is due.
func (b *Bursts) first() time.Duration { return time.Duration(b.Every) / 5 }

// Group is a group of entities that makes a share of the calls.
type Group struct {
	Name string `yaml:"name" json:"name"`
	// ID is the id of the entity. For Count entities it contains one %d, or a verb such as %05d.
	ID    string `yaml:"id" json:"id"`
	Count int    `yaml:"count" json:"count,omitempty"`
	// Pick selects among them: "" evenly, own the caller's own (as many entities as users), zipf the first ones more
	// often.
	Pick     string  `yaml:"pick" json:"pick,omitempty"`
	Exponent float64 `yaml:"exponent" json:"exponent,omitempty"` // of zipf, above 1
	Share    float64 `yaml:"share" json:"share"`                 // relative to the shares of all groups
	// Spikes, while one lasts, give all calls to the group.
	Spikes *Spikes `yaml:"spikes" json:"spikes,omitempty"`
	// Parent is an entity that is also charged for each of these.
	Parent string `yaml:"parent" json:"parent,omitempty"`
}

// Spikes begin at random times, on average PerMinute in each minute without a spike, whatever the rate of calls.
type Spikes struct {
	PerMinute float64 `yaml:"per_minute" json:"per_minute"`
	For       Span    `yaml:"for" json:"for"`
}

// Kind is one kind of call.
type Kind struct {
	Name   string           `yaml:"name" json:"name"`
	Op     Op               `yaml:"op" json:"op"`
	Weight int              `yaml:"weight" json:"weight"` // relative to the weights of all kinds
	Tokens map[string]Range `yaml:"tokens" json:"tokens,omitempty"`
	// Adjust is what a call turns out to have cost: an admitted call is adjusted to it.
	Adjust map[string]Range `yaml:"adjust" json:"adjust,omitempty"`
	// Hold is for how long an admitted call keeps its slots before it gives them back; 0: it gives nothing back.
	Hold Range `yaml:"hold" json:"hold,omitzero"`
	// Wait is for how long a call may wait until a limit admits it; 0: it is refused at once.
	Wait Span `yaml:"wait" json:"wait,omitempty"`
}

const (
	maxHold = 10 * time.Second // slots are held longer than that without a renewal
	maxWait = 5 * time.Second
)

// Op is an operation of a target.
type Op string

// Operations. An adjustment, and a commit that gives slots back, follow an acquire that was admitted.
const (
	Acquire   Op = "acquire"
	Adjust    Op = "adjust"
	Commit    Op = "commit"
	Available Op = "available"
)

// Ops are all operations, in the order of reports.
var Ops = []Op{Acquire, Adjust, Commit, Available}

// Named returns a built-in scenario.
func Named(name string) (*Scenario, error) {
	text, err := files.ReadFile("scenarios/" + name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) || err != nil {
		return nil, fmt.Errorf("unknown scenario %q: the built-in scenarios are %s", name, strings.Join(Names(), ", "))
	}
	return Decode(name, text)
}

// Names lists the built-in scenarios.
func Names() (names []string) {
	entries, _ := files.ReadDir("scenarios")
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return names
}

// Decode decodes a scenario and checks it. An unknown field is an error.
func Decode(name string, text []byte) (*Scenario, error) {
	s := &Scenario{
		Name: name, text: text,
		Demand: Demand{Loop: Open, For: Span(time.Minute), WarmUp: Span(5 * time.Second)},
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(s); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s, nil
}

// Text returns the scenario's source text.
func (s *Scenario) Text() []byte { return s.text }

// MaxUsers is the most users of a scenario, and the most callers of a plan.
const MaxUsers = 100_000

const maxCount = 1_000_000

func (s *Scenario) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Loop != Open && s.Loop != Closed {
		wrong("loop %q is neither open nor closed", s.Loop)
	}
	if s.Users < 1 || s.Users > MaxUsers {
		wrong("users must be from 1 to %d", MaxUsers)
	}
	if s.For <= 0 || s.WarmUp < 0 {
		wrong("for must be above 0, and warm_up must not be negative")
	}
	if !(s.Rate >= 0 && s.Rate <= 10e6) {
		wrong("rate must be from 0 to 10 million")
	}
	if _, ok := s.Shapes[s.Shape]; s.Shape != "" && !ok {
		wrong("shape %q is not defined under shapes", s.Shape)
	}
	for name, stages := range s.Shapes {
		if !slices.ContainsFunc(stages, func(st Stage) bool { return st.Users > 0 }) ||
			slices.ContainsFunc(stages, func(st Stage) bool {
				return st.For <= 0 || st.Users < 0 || st.Users > MaxUsers || !(st.Spawn > 0)
			}) {
			wrong("shape %s: each stage needs for, users and spawn, and at least one stage needs users above 0", name)
		}
	}
	if b := s.Bursts; b != nil &&
		(b.Every <= 0 || b.Calls < 1 || b.Calls > maxCount || s.Loop != Open || s.Shape != "") {
		wrong("bursts need every and calls, and an open loop without a shape")
	}
	for i := range s.Entities {
		errs = append(errs, s.Entities[i].check())
	}
	if len(s.Entities) == 0 || len(s.Resources) == 0 || len(s.Calls) == 0 {
		wrong("entities, resources and calls must not be empty")
	}
	for i := range s.Calls {
		errs = append(errs, s.Calls[i].check())
	}
	return errors.Join(errs...)
}

func (g *Group) check() error {
	verbs := strings.Count(g.ID, "%")
	switch {
	case g.Name == "" || g.ID == "":
		return errors.New("entities: each group needs a name and an id")
	case g.Pick != "" && g.Pick != "own" && g.Pick != "zipf":
		return fmt.Errorf("entities %s: pick %q is neither own nor zipf: leave it out to pick evenly", g.Name, g.Pick)
	case g.Pick == "zipf" && !(g.Exponent > 1):
		return fmt.Errorf("entities %s: exponent must be above 1", g.Name)
	case g.Pick == "own" && g.Count != 0:
		return fmt.Errorf("entities %s: pick own makes one entity per user: leave out count", g.Name)
	case g.Count < 0 || g.Count > maxCount:
		return fmt.Errorf("entities %s: count must be at most %d", g.Name, maxCount)
	case (g.many() && (verbs != 1 || strings.Contains(fmt.Sprintf(g.ID, 1), "%!"))) || !g.many() && verbs != 0:
		return fmt.Errorf(
			"entities %s: the id must contain one %%d for several entities, and none for a single one", g.Name,
		)
	case !(g.Share > 0):
		return fmt.Errorf("entities %s: share must be above 0", g.Name)
	case g.Spikes != nil && (!(g.Spikes.PerMinute > 0) || g.Spikes.For <= 0):
		return fmt.Errorf("entities %s: spikes need per_minute and for", g.Name)
	}
	return nil
}

func (g *Group) many() bool { return g.Count > 1 || g.Pick == "own" }

func (k *Kind) check() error {
	switch {
	case k.Op != Acquire && k.Op != Available:
		return fmt.Errorf("call %s: op %q is neither acquire nor available", k.Name, k.Op)
	case k.Name == "" || k.Weight < 1:
		return errors.New("calls: each needs a name, and a weight of at least 1")
	case k.Op == Available && len(k.Tokens)+len(k.Adjust) > 0, k.Op == Acquire && len(k.Tokens) == 0:
		return fmt.Errorf("call %s: op acquire needs tokens, op available takes none", k.Name)
	case !(k.Hold.From >= 0 && k.Hold.To <= maxHold.Seconds()) || k.Wait < 0 || k.Wait > Span(maxWait):
		return fmt.Errorf("call %s: hold must be from 0s to %s, and wait from 0s to %s", k.Name, maxHold, maxWait)
	case k.Op == Available && (k.Hold.To > 0 || k.Wait > 0):
		return fmt.Errorf("call %s: op available neither holds nor waits", k.Name)
	}
	for _, ranges := range []map[string]Range{k.Tokens, k.Adjust} {
		for name, r := range ranges {
			if r.From < 0 || r.To < r.From || r.To > 1e12 || r.From != float64(int64(r.From)) ||
				r.To != float64(int64(r.To)) {
				return fmt.Errorf("call %s: %s must be a whole number or a range such as 100..1000", k.Name, name)
			}
		}
	}
	for name := range k.Adjust {
		if _, ok := k.Tokens[name]; !ok {
			return fmt.Errorf("call %s: adjusts %s, which is not among its tokens", k.Name, name)
		}
	}
	return nil
}
