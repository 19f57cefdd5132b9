package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
)

// A probe tests whether a limiter limits correctly. Each contender is tested once.
type probe struct {
	name     string
	what     string // what is done, and the correct result
	subjects []subject
}

// A subject is a contender in a probe.
type subject struct {
	name string
	run  func(e *harness.Env) (finding, error)
}

// finding is the result of a subject.
type finding struct {
	saw   string
	right bool
}

// probed is a probe with its findings. Subjects that are not installed are left out.
type probed struct {
	probe
	findings []finding
}

func probes() []probe {
	return []probe{
		raceProbe(), neighbourProbe(), parentProbe(), slidingProbe(), idleProbe(), skewProbe(), loweredProbe(),
		usageProbe(), slotsProbe(), crashProbe(),
	}
}

func findAll(o harness.Options, p probe) (probed, error) {
	out := probed{probe: p}
	out.subjects = nil
	for _, s := range p.subjects {
		fmt.Fprintf(o.Progress, "%s: %s\n", p.name, s.name)
		f, err := find(o, s)
		if harness.Absent(err) {
			fmt.Fprintf(o.Progress, "%s: %s: left out: %v\n", p.name, s.name, err)
			continue
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.name, err)
		}
		out.subjects, out.findings = append(out.subjects, s), append(out.findings, f)
	}
	return out, nil
}

func find(o harness.Options, s subject) (f finding, err error) {
	err = o.With(func(e *harness.Env) error {
		f, err = s.run(e)
		return err
	})
	return f, err
}

// tried is the outcome of a number of requests for one token each.
type tried struct {
	Admitted, Refused, Failed int
	Error                     string
}

func try(ctx context.Context, ask asker, entity string, times int) (t tried) {
	for range times {
		switch ok, err := ask(ctx, entity); {
		case err != nil:
			t.Failed++
			t.Error = err.Error()
		case ok:
			t.Admitted++
		default:
			t.Refused++
		}
	}
	return t
}

func (t tried) String() string {
	s := number(float64(t.Admitted)) + " admitted"
	if t.Failed > 0 {
		s += fmt.Sprintf(", %s errors", number(float64(t.Failed)))
	}
	return s
}

// A racer is a contender in the race. Its instances share one bucket of tokens.
type racer struct {
	name string
	open func(e *harness.Env, tokens int) ([]asker, error)
}

const raceInstances = 16

// raceProbe tests instances that share one bucket and do not know of each other.
func raceProbe() probe {
	size := func(e *harness.Env) (tokens, asks int) { return e.Few(1000, 32), e.Few(4000, 128) }
	judge := func(e *harness.Env, t tried) finding {
		tokens, _ := size(e)
		return finding{t.String(), t.Admitted == tokens && t.Failed == 0}
	}
	racing := func(r racer) subject {
		return subject{r.name, func(e *harness.Env) (finding, error) {
			tokens, asks := size(e)
			askers, err := r.open(e, tokens)
			if err != nil {
				return finding{}, err
			}
			return judge(e, race(e, askers, asks)), nil
		}}
	}
	p := probe{
		name: "Over-admission",
		what: "1,000 tokens, no refill; 16 instances make 4,000 requests between them, concurrently. Correct: 1,000 " +
			"are admitted, and no request ends in an error.",
		subjects: []subject{
			racing(racer{"weir on DynamoDB", weirRacers}),
			{"zae-limiter", func(e *harness.Env) (finding, error) {
				tokens, asks := size(e)
				var t tried
				err := askZae(e, &t, "race", map[string]any{"tokens": tokens, "asks": asks, "instances": raceInstances})
				return judge(e, t), err
			}},
		},
	}
	for _, r := range racers() {
		p.subjects = append(p.subjects, racing(r))
	}
	return p
}

func weirRacers(e *harness.Env, tokens int) (askers []asker, err error) {
	lims, err := fleet(e, raceInstances)
	if err != nil {
		return nil, err
	}
	for _, lim := range lims {
		askers = append(askers, func(ctx context.Context, id string) (bool, error) {
			return lim.Allow(ctx, id, "api")
		})
	}
	return askers, admin.New(lims[0]).Limits.Set(e.Ctx, drained.scope, drained.limit(tokens))
}

// racers are the peers that run in this process or behind its clients.
func racers() []racer {
	reader := func(check bool) func(*harness.Env, int) ([]asker, error) {
		return func(e *harness.Env, tokens int) ([]asker, error) {
			b, err := newReader(e, check, int64(tokens), day)
			return many(raceInstances, b.Allow), err
		}
	}
	all := []racer{{"read, then write, unchecked", reader(false)}, {"read, then write", reader(true)}}
	for _, c := range onRedis {
		all = append(all, racer{c.name, func(e *harness.Env, tokens int) (askers []asker, err error) {
			addr, err := engine.Redis(e)
			for range raceInstances {
				var ask asker
				if err == nil {
					ask, err = c.open(e, addr, quota{tokens, day})
				}
				askers = append(askers, ask)
			}
			return askers, err
		}})
	}
	return append(all, racer{"envoyproxy/ratelimit, 2 processes on Redis", envoyRacers})
}

func envoyRacers(e *harness.Env, tokens int) (askers []asker, err error) {
	addr, err := engine.Redis(e)
	for range 2 {
		var s *service
		if err == nil {
			s, err = envoyService(e, addr, nil, rules{"user", tokens, "day", ""})
		}
		if err == nil {
			askers = append(askers, many(raceInstances/2, s.ask)...)
		}
	}
	return askers, err
}

func many(n int, ask asker) (askers []asker) {
	for range n {
		askers = append(askers, ask)
	}
	return askers
}

// race has instances request the tokens of one entity, concurrently.
func race(e *harness.Env, askers []asker, asks int) (t tried) {
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	for _, ask := range askers {
		wg.Go(func() {
			mine := try(e.Ctx, ask, "alice", asks/len(askers))
			admitted.Add(int64(mine.Admitted))
			failed.Add(int64(mine.Failed))
		})
	}
	wg.Wait()
	return tried{Admitted: int(admitted.Load()), Failed: int(failed.Load())}
}

// askZae runs a probe in a new process of zae-limiter.
func askZae(e *harness.Env, answer any, what string, args map[string]any) error {
	z, err := startZae(e)
	if err != nil {
		return err
	}
	args["run"] = what
	return z.ask(answer, what, args)
}

func probeAll(o harness.Options, selected func(string) bool) (out []probed, err error) {
	for _, p := range probes() {
		if !selected(p.name) {
			continue
		}
		res, err := findAll(o, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if len(res.findings) > 0 {
			out = append(out, res)
		}
	}
	return out, nil
}
