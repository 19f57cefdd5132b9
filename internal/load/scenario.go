package load

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

// Open has calls due at times of their own, whatever is answered; in Closed each user waits for an answer first.
const (
	Open   Loop = "open"
	Closed Loop = "closed"
)

// Scenario is who asks for what, how often, under which limits.
type Scenario struct {
	Name  string `yaml:"-" json:"name"`
	About string `yaml:"about" json:"about"`
	Loop  Loop   `yaml:"loop" json:"loop"`
	// Users ask, each waiting for Wait between its calls; in an open loop they say how often calls are due.
	Users int   `yaml:"users" json:"users"`
	Wait  Range `yaml:"wait" json:"wait"`
	// Rate is how many calls a second are due in an open loop. Defaults to Users by the mean of Wait.
	Rate float64 `yaml:"rate" json:"rate,omitempty"`
	// For is how long a run takes, and WarmUp how long it asks before anything counts.
	For    Span `yaml:"for" json:"for"`
	WarmUp Span `yaml:"warm_up" json:"warm_up"`
	// Shape is the one of Shapes that is followed; "": none, the users are always as many.
	Shape  string             `yaml:"shape" json:"shape,omitempty"`
	Shapes map[string][]Stage `yaml:"shapes" json:"shapes,omitempty"`
	// Bursts has calls due together, instead of evenly.
	Bursts    *Bursts  `yaml:"bursts" json:"bursts,omitempty"`
	Entities  []Group  `yaml:"entities" json:"entities"`
	Resources []string `yaml:"resources" json:"resources"` // each as often as any other
	Calls     []Kind   `yaml:"calls" json:"calls"`
	// Limits is a manifest without a namespace.
	Limits map[string]any `yaml:"limits" json:"limits"`

	text []byte
}

// Stage has users come and go, Spawn a second, until there are as many.
type Stage struct {
	For   Span    `yaml:"for" json:"for"`
	Users int     `yaml:"users" json:"users"`
	Spawn float64 `yaml:"spawn" json:"spawn"`
}

// Bursts are Calls at once, in the middle of Every so much time.
type Bursts struct {
	Every Span `yaml:"every" json:"every"`
	Calls int  `yaml:"calls" json:"calls"`
}

// Group is entities of whom a share of the calls is.
type Group struct {
	Name string `yaml:"name" json:"name"`
	// ID of the entity, or of Count entities: then it has one %d, or %05d and the like.
	ID    string `yaml:"id" json:"id"`
	Count int    `yaml:"count" json:"count,omitempty"`
	// Pick says which of them: "" evenly, own the caller's, of whom there are as many as users, zipf the first ones more.
	Pick     string  `yaml:"pick" json:"pick,omitempty"`
	Exponent float64 `yaml:"exponent" json:"exponent,omitempty"` // of zipf, above 1
	Share    float64 `yaml:"share" json:"share"`                 // by that of all groups
	// Spikes, while one lasts, give the group all calls.
	Spikes *Spikes `yaml:"spikes" json:"spikes,omitempty"`
	// Parent is an entity that is charged with each of these.
	Parent string `yaml:"parent" json:"parent,omitempty"`
}

// Spikes begin at random times, so many a minute outside of one, whatever the rate of calls.
type Spikes struct {
	PerMinute float64 `yaml:"per_minute" json:"per_minute"`
	For       Span    `yaml:"for" json:"for"`
}

// Kind is one kind of call.
type Kind struct {
	Name   string           `yaml:"name" json:"name"`
	Op     Op               `yaml:"op" json:"op"`
	Weight int              `yaml:"weight" json:"weight"` // by that of all kinds
	Tokens map[string]Range `yaml:"tokens" json:"tokens,omitempty"`
	// Adjust is what a call turns out to have cost: what was admitted is adjusted to it.
	Adjust map[string]Range `yaml:"adjust" json:"adjust,omitempty"`
}

// Op is an operation of a target.
type Op string

// The operations. An adjustment follows an acquire that was admitted.
const (
	Acquire   Op = "acquire"
	Adjust    Op = "adjust"
	Available Op = "available"
)

var ops = []Op{Acquire, Adjust, Available}

// Named returns a scenario that comes with the package.
func Named(name string) (*Scenario, error) {
	text, err := files.ReadFile("scenarios/" + name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) || err != nil {
		return nil, fmt.Errorf("scenario %q is not known: there are %s", name, strings.Join(Names(), ", "))
	}
	return Decode(name, text)
}

// Names lists the scenarios that come with the package.
func Names() (names []string) {
	entries, _ := files.ReadDir("scenarios")
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return names
}

// Decode reads a scenario and checks it. A field that is not known is an error.
func Decode(name string, text []byte) (*Scenario, error) {
	s := &Scenario{Name: name, Loop: Open, For: Span(time.Minute), WarmUp: Span(5 * time.Second), text: text}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(s); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s, nil
}

// Text returns the scenario as it was written.
func (s *Scenario) Text() []byte { return s.text }

const (
	maxUsers = 100_000
	maxCount = 1_000_000
)

func (s *Scenario) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Loop != Open && s.Loop != Closed {
		wrong("loop %q is neither open nor closed", s.Loop)
	}
	if s.Users < 1 || s.Users > maxUsers {
		wrong("users must be from 1 to %d", maxUsers)
	}
	if s.For <= 0 || s.WarmUp < 0 {
		wrong("for must be more than 0, and warm_up not less")
	}
	if !(s.Rate >= 0 && s.Rate <= 10e6) {
		wrong("rate must be from 0 to 10 million")
	}
	if _, ok := s.Shapes[s.Shape]; s.Shape != "" && !ok {
		wrong("shape %q is none of its shapes", s.Shape)
	}
	for name, stages := range s.Shapes {
		if !slices.ContainsFunc(stages, func(st Stage) bool { return st.Users > 0 }) ||
			slices.ContainsFunc(stages, func(st Stage) bool {
				return st.For <= 0 || st.Users < 0 || st.Users > maxUsers || !(st.Spawn > 0)
			}) {
			wrong("shape %s: each stage needs for, users and spawn, one of them at least some users", name)
		}
	}
	if b := s.Bursts; b != nil && (b.Every <= 0 || b.Calls < 1 || b.Calls > maxCount || s.Loop != Open || s.Shape != "") {
		wrong("bursts need every and calls, in an open loop without a shape")
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
		return fmt.Errorf("entities %s: pick %q is none of own, zipf; leave it out for evenly", g.Name, g.Pick)
	case g.Pick == "zipf" && !(g.Exponent > 1):
		return fmt.Errorf("entities %s: exponent must be above 1", g.Name)
	case g.Pick == "own" && g.Count != 0:
		return fmt.Errorf("entities %s: with pick own there are as many as users: leave count out", g.Name)
	case g.Count < 0 || g.Count > maxCount:
		return fmt.Errorf("entities %s: count must be at most %d", g.Name, maxCount)
	case (g.many() && (verbs != 1 || strings.Contains(fmt.Sprintf(g.ID, 1), "%!"))) || !g.many() && verbs != 0:
		return fmt.Errorf("entities %s: the id of many entities has one %%d, that of one has none", g.Name)
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
		return fmt.Errorf("call %s: an acquire names tokens, available does not", k.Name)
	}
	for _, ranges := range []map[string]Range{k.Tokens, k.Adjust} {
		for name, r := range ranges {
			if r.From < 0 || r.To < r.From || r.To > 1e12 || r.From != float64(int64(r.From)) || r.To != float64(int64(r.To)) {
				return fmt.Errorf("call %s: %s must be a whole number or a range such as 100..1000", k.Name, name)
			}
		}
	}
	for name := range k.Adjust {
		if _, ok := k.Tokens[name]; !ok {
			return fmt.Errorf("call %s: adjusts %s, for which it does not ask", k.Name, name)
		}
	}
	return nil
}
