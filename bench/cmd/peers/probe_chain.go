package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir"
)

const day = 24 * time.Hour

// drained is a limit that does not refill while a probe runs.
var drained = struct {
	scope weir.Scope
	limit func(tokens int) weir.Limit
}{
	weir.Scope{Resource: "api"},
	func(tokens int) weir.Limit { return weir.PerDay("rpm", 1).WithBurst(int64(tokens)) },
}

// one asks for a token, as with a lease that is kept.
func one(lim *weir.Limiter) asker {
	return func(ctx context.Context, id string) (bool, error) {
		_, err := lim.Acquire(ctx, weir.Request{Entity: id, Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
		var over *weir.ExceededError
		if errors.As(err, &over) {
			return false, nil
		}
		return err == nil, err
	}
}

// left returns what an entity has, beside its parents.
func left(e *env, lim *weir.Limiter, id string) (int, error) {
	a, err := lim.Available(e.ctx, id, "api")
	if err != nil {
		return 0, err
	}
	return int(a.Statuses[0].Available), nil
}

// weirFamily has children of one parent, with limits of their own.
func weirFamily(e *env, own, parents int, children ...string) (*weir.Limiter, error) {
	lim, _, err := single(e)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		lim.SetLimits(e.ctx, drained.scope, drained.limit(own)),
		lim.CreateEntity(e.ctx, weir.Entity{ID: "tenant"}),
		lim.SetLimits(e.ctx, weir.Scope{Entity: "tenant", Resource: "api"}, drained.limit(parents)))
	for _, id := range children {
		err = errors.Join(err, lim.CreateEntity(e.ctx, weir.Entity{ID: id, Parent: "tenant", Cascade: true}))
	}
	return lim, err
}

// services are Envoy's, with a limit of each user and one of a tenant, of which a request has a descriptor each.
var services = []struct {
	name  string
	start func(e *env, addr string, limits ...rules) (*service, error)
}{
	{"weir's rate limit service", func(e *env, addr string, limits ...rules) (*service, error) {
		return weirService(e, "redis://"+addr, limits...)
	}},
	{"envoyproxy/ratelimit", func(e *env, addr string, limits ...rules) (*service, error) {
		return envoyService(e, addr, nil, limits...)
	}},
	{"envoyproxy/ratelimit, STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", func(e *env, addr string, limits ...rules) (*service, error) {
		return envoyService(e, addr, []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"}, limits...)
	}},
}

// both asks for a hit of a user and of the tenant.
func both(s *service) asker {
	return func(ctx context.Context, id string) (bool, error) {
		return s.allowed(ctx, 0, [2]string{"user", id}, [2]string{"tenant", "acme"})
	}
}

func startFamily(e *env, own, parents int, start func(e *env, addr string, limits ...rules) (*service, error)) (*service, error) {
	addr, err := startRedis(e)
	if err != nil {
		return nil, err
	}
	return start(e, addr, rules{"user", own, "day", ""}, rules{"tenant", parents, "day", "acme"})
}

// neighbourProbe is of a user who is over the own limit all the time, and of another of the same tenant.
func neighbourProbe() probe {
	const own, innocent = 10, 10
	p := probe{
		name: "Noisy neighbour",
		what: "Users have 10 tokens each, their tenant 500. One user asks 1,000 times, then another one 10 times. Right: 10 of each are admitted, and the tenant has paid for no more than was admitted.",
	}
	size := func(e *env) (tenant, asks int) { return e.few(500, 30), e.few(1000, 60) }
	judge := func(noisy, quiet tried, lost int) finding {
		return finding{
			fmt.Sprintf("noisy user: %s; innocent user: %s of %d; %s", noisy, quiet, innocent, gone("the tenant", lost)),
			noisy.Admitted == own && quiet.Admitted == innocent && lost == 0 && noisy.Failed+quiet.Failed == 0,
		}
	}
	p.subjects = append(p.subjects, subject{"weir on DynamoDB", func(e *env) (finding, error) {
		tenant, asks := size(e)
		lim, err := weirFamily(e, own, tenant, "noisy", "quiet")
		if err != nil {
			return finding{}, err
		}
		noisy := try(e.ctx, one(lim), "noisy", asks)
		quiet := try(e.ctx, one(lim), "quiet", innocent)
		rest, err := left(e, lim, "tenant")
		return judge(noisy, quiet, tenant-noisy.Admitted-quiet.Admitted-rest), err
	}}, subject{"zae-limiter", func(e *env) (finding, error) {
		tenant, asks := size(e)
		var a struct {
			Noisy, Innocent tried
			Lost            int
		}
		err := askZae(e, &a, "neighbour", map[string]any{"own": own, "parents": tenant, "asks": asks, "innocent": innocent})
		return judge(a.Noisy, a.Innocent, a.Lost), err
	}})
	for _, c := range services {
		p.subjects = append(p.subjects, subject{c.name, func(e *env) (finding, error) {
			tenant, asks := size(e)
			s, err := startFamily(e, own, tenant, c.start)
			if err != nil {
				return finding{}, err
			}
			noisy := try(e.ctx, both(s), "noisy", asks)
			quiet := try(e.ctx, both(s), "quiet", innocent)
			rest := try(e.ctx, func(ctx context.Context, _ string) (bool, error) {
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

// parentProbe is of a child with plenty left, whose parent has nothing.
func parentProbe() probe {
	const own, tenant, asks = 100, 10, 30
	p := probe{
		name: "Parent exhausted",
		what: "A user has 100 tokens, the tenant 10; the user asks 30 times. Right: 10 are admitted, 20 refused without an error, and the user has 90 tokens left.",
	}
	judge := func(t tried, lost int) finding {
		return finding{
			t.String() + "; " + gone("the user", lost),
			t.Admitted == tenant && t.Failed == 0 && lost == 0,
		}
	}
	p.subjects = append(p.subjects, subject{"weir on DynamoDB", func(e *env) (finding, error) {
		lim, err := weirFamily(e, own, tenant, "user")
		if err != nil {
			return finding{}, err
		}
		t := try(e.ctx, one(lim), "user", asks)
		rest, err := left(e, lim, "user")
		return judge(t, own-t.Admitted-rest), err
	}}, subject{"zae-limiter", func(e *env) (finding, error) {
		var a struct {
			tried
			Lost int
		}
		err := askZae(e, &a, "parent", map[string]any{"own": own, "parents": tenant, "asks": asks})
		return judge(a.tried, a.Lost), err
	}})
	for _, c := range services {
		p.subjects = append(p.subjects, subject{c.name, func(e *env) (finding, error) {
			s, err := startFamily(e, own, tenant, c.start)
			if err != nil {
				return finding{}, err
			}
			t := try(e.ctx, both(s), "user", asks)
			rest := try(e.ctx, s.ask, "user", own)
			return judge(t, own-t.Admitted-rest.Admitted), nil
		}})
	}
	return p
}
