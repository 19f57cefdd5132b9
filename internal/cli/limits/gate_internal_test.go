package limits

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/gates"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/store/memory"
)

const gatePath = "/applications/weir-gate/environments/weir-gate/configurations/weir-gate"

// gated is a rollout from 100 a minute to 50, gated by AppConfig.
type gated struct {
	t     *testing.T
	lim   *weir.Limiter
	plan  *manifest.Plan
	conf  *appConfig
	agent *agent

	mu   sync.Mutex
	told []string
}

func gatedManifest(t *testing.T, rpm int) *manifest.Manifest {
	t.Helper()
	text := fmt.Sprintf("namespace: default\nresources:\n  api:\n    limits:\n      rpm: {capacity: %d}\n", rpm)
	ms, err := manifest.Decode([]strictyaml.Source{{Name: "limits.yaml", Text: []byte(text)}}, strictyaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return ms[0]
}

func bubble(t *testing.T, f func(g *gated)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lim, err := weir.New(weir.Config{Store: memory.New(nil), CacheTTL: -1})
		if err != nil {
			t.Fatal(err)
		}
		g := &gated{t: t, lim: lim, conf: &appConfig{bake: 10 * time.Minute}}
		g.agent = &agent{appConfig: g.conf, path: gatePath}
		if _, err := manifest.Apply(t.Context(), lim, g.make(100), manifest.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		g.plan = g.make(50)
		g.deploy(map[string]int{})
		time.Sleep(time.Hour)
		f(g)
		if err := lim.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (g *gated) make(rpm int) *manifest.Plan {
	g.t.Helper()
	p, err := manifest.Make(g.t.Context(), g.lim, gatedManifest(g.t, rpm), manifest.PlanOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

func (g *gated) deploy(lets map[string]int) {
	g.t.Helper()
	if err := g.conf.deploy(gateText(lets)); err != nil {
		g.t.Fatal(err)
	}
}

// lets deploys a document that lets the rollout go to the given percentage.
func (g *gated) lets(percent int) { g.deploy(map[string]int{g.plan.Hash: percent}) }

// start begins the rollout, and returns a channel that reports its end.
func (g *gated) start() <-chan error {
	gate := &approval{
		hash: g.plan.Hash, read: lettingOf(&http.Client{Timeout: 10 * time.Second, Transport: g.agent}, "http://localhost:2772"+gatePath),
		tell: func(text string) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.told = append(g.told, text)
		},
		next: &refusals{threshold: -1},
	}
	ended := make(chan error, 1)
	go func() {
		_, err := manifest.Rollout(context.WithoutCancel(g.t.Context()), g.lim, g.plan, manifest.RolloutOptions{
			Terms: &manifest.Terms{Stages: []int{5, 50}, Bake: time.Minute},
			Gate:  func(context.Context, manifest.Terms) (gates.Gate, error) { return gate, nil },
		})
		ended <- err
	}()
	return ended
}

// want checks for how many of 200 entities the new limit holds.
func (g *gated) want(least, most int, when string) {
	g.t.Helper()
	n := 0
	for i := range 200 {
		lease, err := g.lim.Acquire(g.t.Context(), weir.Request{Entity: fmt.Sprint("e", i), Resource: "api", Tokens: weir.Tokens{}})
		if err != nil {
			g.t.Fatal(err)
		}
		if lease.Decision().Statuses[0].Burst == 50 {
			n++
		}
	}
	if n < least || n > most {
		g.t.Errorf("%s: it holds for %d of 200 entities, want %d to %d", when, n, least, most)
	}
}

func (g *gated) hears(part string) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !strings.Contains(strings.Join(g.told, "\n"), part) {
		g.t.Errorf("nothing was told of %q: %q", part, g.told)
	}
}

// opens is how long a gate may take to open: the agent's poll plus the rollout's.
const opens = agentPolls + gateEvery + 10*time.Second

// Each stage begins when a version that allows it is deployed, and not before.
func TestGateOpens(t *testing.T) {
	t.Parallel()
	bubble(t, func(g *gated) {
		ended := g.start()
		time.Sleep(20 * time.Minute)
		g.want(0, 0, "nothing is let")
		g.hears("allows " + g.plan.Hash + " for 0% of the entities, not for 5%")
		g.deploy(map[string]int{"sha256:" + strings.Repeat("0", 64): 100}) // another manifest's
		time.Sleep(20 * time.Minute)
		g.want(0, 0, "another is let")
		g.lets(5)
		time.Sleep(opens)
		g.want(3, 25, "5%")
		time.Sleep(20 * time.Minute)
		g.want(3, 25, "5% for long")
		g.lets(99)
		time.Sleep(opens)
		g.want(75, 125, "99%")
		time.Sleep(20 * time.Minute)
		g.want(75, 125, "99% for long")
		g.lets(100)
		time.Sleep(opens)
		if err := <-ended; err != nil {
			g.t.Fatal(err)
		}
		g.want(200, 200, "100%")
		g.hears("the gate (version 4, read 0s ago) is open for 50%")
		if least := g.agent.eager(); least < gateEvery {
			g.t.Errorf("read again after %s", least)
		}
	})
}

// An alarm rolls a version back, and the rollout follows: the previous version allows less, or does not mention this
// manifest.
func TestGateRollsBack(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"to the stage before": 5, "to another manifest": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(g *gated) {
				if before > 0 {
					g.lets(before)
					time.Sleep(time.Hour)
				} else {
					g.deploy(map[string]int{"sha256:" + strings.Repeat("0", 64): 100})
					time.Sleep(time.Hour)
				}
				g.lets(50)
				ended := g.start()
				time.Sleep(5 * time.Minute)
				g.want(75, 125, "50%")
				g.conf.alarm()
				time.Sleep(opens)
				var stopped *manifest.StoppedError
				if err := <-ended; !errors.As(err, &stopped) || stopped.Restore != nil || !strings.Contains(err.Error(), "no longer for 50%") {
					g.t.Errorf("error %v", err)
				}
				g.want(0, 0, "rolled back")
				if p := g.make(100); !p.Empty() {
					g.t.Errorf("not as before: %+v", p.Changes)
				}
			})
		})
	}
}

// A gate that cannot be read opens nothing. A stage that was reached holds for some minutes, and no longer.
func TestGateAway(t *testing.T) {
	t.Parallel()
	bubble(t, func(g *gated) { // from the start
		g.agent.setDown(true)
		if err := <-g.start(); !errors.Is(err, errAppConfig) {
			g.t.Errorf("error %v", err)
		}
		g.want(0, 0, "never read")
	})
	bubble(t, func(g *gated) {
		g.lets(5)
		ended := g.start()
		time.Sleep(5 * time.Minute)
		g.want(3, 25, "5%")
		time.Sleep(10 * time.Minute)
		g.agent.setDown(true)
		g.lets(50)
		time.Sleep(3 * time.Minute)
		g.want(3, 25, "not read for 3 minutes")
		g.hears("the gate cannot be read")
		g.agent.setDown(false)
		time.Sleep(opens)
		g.hears("the gate can be read again")
		g.want(75, 125, "read again")
		g.agent.setDown(true)
		time.Sleep(gateStale + time.Minute)
		if err := <-ended; !errors.Is(err, errAppConfig) || !strings.Contains(err.Error(), "was last read") {
			g.t.Errorf("error %v", err)
		}
		g.want(0, 0, "not read for too long")
	})
	bubble(t, func(g *gated) { // AppConfig is down, and its agent answers with what it has
		g.lets(50)
		ended := g.start()
		time.Sleep(5 * time.Minute)
		g.conf.setAway(true)
		time.Sleep(2 * time.Hour) // longer than a token is valid
		g.want(75, 125, "AppConfig is away")
		g.conf.setAway(false)
		g.lets(100)
		time.Sleep(opens)
		if err := <-ended; err != nil {
			g.t.Fatal(err)
		}
	})
}

// A document that is not a gate's opens nothing, and neither does one that cannot be interpreted.
func TestGateDocument(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "{}", "null", "[]", `{"rollouts": {"x": 100}}`, `{"format": "weir-gate-2", "rollouts": {"x": 100}}`,
		`{"format": "weir-gate-1", "rollouts": {"x": 101}}`, `{"format": "weir-gate-1", "rollouts": {"x": -1}}`, `{"format": "weir-gate-1", "rollouts": {"x": "5"}}`,
	} {
		a := &agent{appConfig: &appConfig{deployed: 1, versions: []string{bad + " "}}, path: gatePath}
		if l, err := lettingOf(&http.Client{Transport: a}, "http://localhost:2772"+gatePath)(t.Context()); err == nil {
			t.Errorf("%s is taken for %v", bad, l)
		}
	}
	a := &agent{appConfig: &appConfig{}, path: gatePath}
	if _, err := lettingOf(&http.Client{Transport: a}, "http://localhost:2772"+gatePath)(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("nothing is deployed: %v", err)
	}
}

// The template's initial document is a closed gate, and the agent serves it at a gate's URL.
func TestGateTemplate(t *testing.T) {
	t.Parallel()
	tmpl, err := stack.Load(stack.Gate)
	if err != nil {
		t.Fatal(err)
	}
	r, err := cloudtest.Resolve(tmpl.Plain(), nil)
	if err != nil {
		t.Fatal(err)
	}
	closed := r.Resources["Closed"]["Properties"].(map[string]any)["Content"].(string)
	a := &agent{appConfig: &appConfig{deployed: 1, versions: []string{closed}}, path: gatePath}
	at, _ := r.Outputs["GateUrl"]["Value"].(string)
	l, err := lettingOf(&http.Client{Transport: a}, at)(t.Context())
	if err != nil || len(l.Rollouts) > 0 || checkGate(at) != nil {
		t.Errorf("%+v, %v, %s", l, err, at)
	}
}
