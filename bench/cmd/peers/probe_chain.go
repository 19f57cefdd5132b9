package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
)

const day = 24 * time.Hour

// drained is a limit that does not refill while a probe runs.
var drained = struct {
	scope admin.Scope
	limit func(tokens int) weir.Limit
}{
	admin.Scope{Resource: "api"},
	func(tokens int) weir.Limit { return weir.PerDay("rpm", 1).WithBurst(int64(tokens)) },
}

// one requests a token, with a lease that is never settled.
func one(lim *weir.Limiter) asker {
	return func(ctx context.Context, id string) (bool, error) {
		_, err := lim.Acquire(ctx, weir.Request{Entity: id, Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
		if _, ok := errors.AsType[*weir.ExceededError](err); ok {
			return false, nil
		}
		return err == nil, err
	}
}

// left returns what an entity itself has left, without its parents.
func left(e *harness.Env, lim *weir.Limiter, id string) (int, error) {
	a, err := lim.Available(e.Ctx, id, "api")
	if err != nil {
		return 0, err
	}
	return int(a.Statuses[0].Available), nil
}

// weirFamily returns a limiter with children of one parent, each with a limit of its own.
func weirFamily(e *harness.Env, own, parents int, children ...string) (*weir.Limiter, error) {
	lim, err := single(e)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		admin.New(lim).Limits.Set(e.Ctx, drained.scope, drained.limit(own)),
		admin.New(lim).Entities.Create(e.Ctx, admin.Entity{ID: "tenant"}),
		admin.New(lim).Limits.Set(e.Ctx, admin.Scope{Entity: "tenant", Resource: "api"}, drained.limit(parents)))
	for _, id := range children {
		err = errors.Join(
			err, admin.New(lim).Entities.Create(e.Ctx, admin.Entity{ID: id, Parent: "tenant", Cascade: true}),
		)
	}
	return lim, err
}

// services are rate limit services for Envoy. They limit each user and one tenant; a request has a descriptor for each.
var services = []struct {
	name  string
	start func(e *harness.Env, addr string, limits ...rules) (*service, error)
}{
	{"weir's rate limit service", func(e *harness.Env, addr string, limits ...rules) (*service, error) {
		return weirService(e, "redis://"+addr, limits...)
	}},
	{"envoyproxy/ratelimit", func(e *harness.Env, addr string, limits ...rules) (*service, error) {
		return envoyService(e, addr, nil, limits...)
	}},
	{"envoyproxy/ratelimit, STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", func(
		e *harness.Env, addr string, limits ...rules,
	) (*service, error) {
		return envoyService(e, addr, []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"}, limits...)
	}},
}

// both requests one hit each for a user and the tenant.
func both(s *service) asker {
	return func(ctx context.Context, id string) (bool, error) {
		return s.allowed(ctx, 0, [2]string{"user", id}, [2]string{"tenant", "acme"})
	}
}

func startFamily(
	e *harness.Env, own, parents int, start func(e *harness.Env, addr string, limits ...rules) (*service, error),
) (*service, error) {
	addr, err := engine.Redis(e)
	if err != nil {
		return nil, err
	}
	return start(e, addr, rules{"user", own, "day", ""}, rules{"tenant", parents, "day", "acme"})
}

// neighbourProbe tests a user who is constantly over the user's own limit, and another user of the same tenant.
func neighbourProbe() probe {
	const own, innocent = 10, 10
	p := probe{
		name: "Noisy neighbour",
		what: "Each user has 10 tokens, their tenant 500. One user makes 1,000 requests, then another makes 10. " +
			"Correct: 10 requests of each are admitted, and the tenant is debited for no others.",
	}
	size := func(e *harness.Env) (tenant, asks int) { return e.Few(500, 30), e.Few(1000, 60) }
	judge := func(noisy, quiet tried, lost int) finding {
		return finding{
			fmt.Sprintf("noisy user: %s; other user: %s of %d; %s", noisy, quiet, innocent, gone("the tenant", lost)),
			noisy.Admitted == own && quiet.Admitted == innocent && lost == 0 && noisy.Failed+quiet.Failed == 0,
		}
	}
	p.subjects = append(p.subjects, subject{"weir on DynamoDB", func(e *harness.Env) (finding, error) {
		tenant, asks := size(e)
		lim, err := weirFamily(e, own, tenant, "noisy", "quiet")
		if err != nil {
			return finding{}, err
		}
		noisy := try(e.Ctx, one(lim), "noisy", asks)
		quiet := try(e.Ctx, one(lim), "quiet", innocent)
		rest, err := left(e, lim, "tenant")
		return judge(noisy, quiet, tenant-noisy.Admitted-quiet.Admitted-rest), err
	}}, subject{"zae-limiter", func(e *harness.Env) (finding, error) {
		tenant, asks := size(e)
		var a struct {
			Noisy, Innocent tried
			Lost            int
		}
		err := askZae(e, &a, "neighbour", map[string]any{
			"own": own, "parents": tenant, "asks": asks, "innocent": innocent,
		})
		return judge(a.Noisy, a.Innocent, a.Lost), err
	}})
	for _, c := range services {
		p.subjects = append(p.subjects, subject{c.name, func(e *harness.Env) (finding, error) {
			tenant, asks := size(e)
			s, err := startFamily(e, own, tenant, c.start)
			if err != nil {
				return finding{}, err
			}
			noisy := try(e.Ctx, both(s), "noisy", asks)
			quiet := try(e.Ctx, both(s), "quiet", innocent)
			rest := try(e.Ctx, func(ctx context.Context, _ string) (bool, error) {
				return s.allowed(ctx, 0, [2]string{"tenant", "acme"})
			}, "", tenant)
			return judge(noisy, quiet, tenant-noisy.Admitted-quiet.Admitted-rest.Admitted), nil
		}})
	}
	return p
}

func gone(who string, lost int) string {
	if lost == 0 {
		return who + " lost nothing"
	}
	return fmt.Sprintf("%s lost %s tokens", who, number(float64(lost)))
}

// parentProbe tests a child with plenty left, whose parent has nothing left.
func parentProbe() probe {
	const own, tenant, asks = 100, 10, 30
	p := probe{
		name: "Parent exhausted",
		what: "A user has 100 tokens, the tenant 10; the user makes 30 requests. Correct: 10 are admitted, 20 are " +
			"refused without an error, and the user has 90 tokens left.",
	}
	judge := func(t tried, lost int) finding {
		return finding{
			t.String() + "; " + gone("the user", lost),
			t.Admitted == tenant && t.Failed == 0 && lost == 0,
		}
	}
	p.subjects = append(p.subjects, subject{"weir on DynamoDB", func(e *harness.Env) (finding, error) {
		lim, err := weirFamily(e, own, tenant, "user")
		if err != nil {
			return finding{}, err
		}
		t := try(e.Ctx, one(lim), "user", asks)
		rest, err := left(e, lim, "user")
		return judge(t, own-t.Admitted-rest), err
	}}, subject{"zae-limiter", func(e *harness.Env) (finding, error) {
		var a struct {
			tried
			Lost int
		}
		err := askZae(e, &a, "parent", map[string]any{"own": own, "parents": tenant, "asks": asks})
		return judge(a.tried, a.Lost), err
	}})
	for _, c := range services {
		p.subjects = append(p.subjects, subject{c.name, func(e *harness.Env) (finding, error) {
			s, err := startFamily(e, own, tenant, c.start)
			if err != nil {
				return finding{}, err
			}
			t := try(e.Ctx, both(s), "user", asks)
			rest := try(e.Ctx, s.ask, "user", own)
			return judge(t, own-t.Admitted-rest.Admitted), nil
		}})
	}
	return p
}
