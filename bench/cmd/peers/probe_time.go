package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// The limit of the time probes. At most both together may be admitted in a second.
const (
	timeRate  = 100 // a second
	timeBurst = 10
)

// A timeSubject requests tokens of a limit of timeRate, with a burst of timeBurst if it has bursts.
type timeSubject struct {
	name  string
	burst int
	open  func(e *env) (asker, error)
}

// span bounds the time of an admission: from the request to the answer.
type span [2]time.Duration

// timeQuota is the limit of the subjects that take one with a burst.
var timeQuota = quota{timeBurst, time.Second / timeRate}

func timeSubjects() []timeSubject {
	return slices.Concat(timesOfWeir(), timesInMemory(), timesOnRedis())
}

func timesOfWeir() []timeSubject {
	return []timeSubject{
		{"weir in memory", timeBurst, func(e *env) (asker, error) {
			lim, err := weir.New(weir.Config{Store: memory.New(nil)})
			if err != nil {
				return nil, err
			}
			e.defers(lim.Close)
			return one(lim), admin.New(lim).Limits.Set(e.ctx, drained.scope, timeQuota.limit())
		}},
		{"weir on DynamoDB", timeBurst, func(e *env) (asker, error) {
			lim, err := single(e)
			if err != nil {
				return nil, err
			}
			return one(lim), admin.New(lim).Limits.Set(e.ctx, drained.scope, timeQuota.limit())
		}},
	}
}

// timesInMemory are the peers without a store.
func timesInMemory() []timeSubject {
	return []timeSubject{
		{"x/time/rate", timeBurst, func(*env) (asker, error) {
			lim := rate.NewLimiter(timeRate, timeBurst)
			return func(context.Context, string) (bool, error) { return lim.Allow(), nil }, nil
		}},
		{"uber/ratelimit", timeBurst, func(*env) (asker, error) { // waits instead of refusing, with a slack of 10
			lim := ratelimit.New(timeRate)
			return func(context.Context, string) (bool, error) { lim.Take(); return true, nil }, nil
		}},
		{"go-limiter", 0, func(e *env) (asker, error) {
			st, err := memorystore.New(&memorystore.Config{Tokens: timeRate, Interval: time.Second})
			if err != nil {
				return nil, err
			}
			e.defers(func() error { return st.Close(context.WithoutCancel(e.ctx)) })
			return func(ctx context.Context, id string) (bool, error) {
				_, _, _, ok, err := st.Take(ctx, id)
				return ok, err
			}, nil
		}},
		{"throttled in memory", timeBurst, func(*env) (asker, error) {
			st, err := memstore.NewCtx(10)
			if err != nil {
				return nil, err
			}
			lim, err := throttled.NewGCRARateLimiterCtx(st, throttled.RateQuota{
				MaxRate: throttled.PerSec(timeRate), MaxBurst: timeBurst - 1,
			})
			return func(ctx context.Context, id string) (bool, error) {
				limited, _, err := lim.RateLimitCtx(ctx, id, 1)
				return err == nil && !limited, err
			}, err
		}},
	}
}

func timesOnRedis() (subjects []timeSubject) {
	for _, c := range onRedis {
		subjects = append(subjects, timeSubject{c.name, timeBurst, func(e *env) (asker, error) {
			addr, err := startRedis(e)
			if err != nil {
				return nil, err
			}
			return c.open(e, addr, timeQuota)
		}})
	}
	return append(subjects, timeSubject{"envoyproxy/ratelimit", 0, func(e *env) (asker, error) {
		addr, err := startRedis(e)
		if err != nil {
			return nil, err
		}
		s, err := envoyService(e, addr, nil, rules{"user", timeRate, "second", ""})
		if err != nil {
			return nil, err
		}
		return s.ask, nil
	}})
}

// hammer sends requests continuously for the given time.
func hammer(e *env, ask asker, length time.Duration) (at []span, err error) {
	began := time.Now()
	for {
		before := time.Since(began)
		if before >= length {
			return at, nil
		}
		ok, err := ask(e.ctx, "alice")
		if err != nil {
			return at, err
		}
		if ok {
			at = append(at, span{before, time.Since(began)})
		}
		time.Sleep(50 * time.Microsecond) // real time: the subjects have clocks of their own
	}
}

// until waits until the clock is the given time into a second, because windows begin with seconds.
func until(into time.Duration) {
	now := time.Duration(time.Now().Nanosecond())
	time.Sleep((into - now + time.Second) % time.Second) // real time: as above
}

// most returns the largest number that was certainly admitted within one second.
func most(at []span) (n int) {
	for i := range at {
		ended := at[i][0] + time.Second
		n = max(n, len(slices.DeleteFunc(slices.Clone(at[i:]), func(s span) bool { return s[1] > ended })))
	}
	return n
}

// hammerZae does the same in zae-limiter's process.
func hammerZae(e *env, idle, length time.Duration, drain int) (at []span, err error) {
	var a struct{ At [][2]float64 }
	err = askZae(e, &a, "hammer", map[string]any{
		"rate": timeRate, "burst": timeBurst, "idle": idle.Seconds(), "seconds": length.Seconds(), "drain": drain,
	})
	for _, s := range a.At {
		at = append(at, span{time.Duration(s[0] * 1e9), time.Duration(s[1] * 1e9)})
	}
	return at, err
}

// timeProbe drains each subject, leaves it idle, then hammers it.
func timeProbe(
	p probe, drain int, idle, length func(e *env) time.Duration, start time.Duration,
	judge func(burst int, at []span) finding,
) probe {
	for _, s := range timeSubjects() {
		p.subjects = append(p.subjects, subject{s.name, func(e *env) (finding, error) {
			ask, err := s.open(e)
			if err != nil {
				return finding{}, err
			}
			if !e.quick {
				until(start)
			}
			try(e.ctx, ask, "alice", drain)
			time.Sleep(idle(e)) // real time: as above
			at, err := hammer(e, ask, length(e))
			return judge(s.burst, at), err
		}})
	}
	p.subjects = append(p.subjects, subject{"zae-limiter", func(e *env) (finding, error) {
		at, err := hammerZae(e, idle(e), length(e), drain)
		return judge(timeBurst, at), err
	}})
	return p
}

// slidingProbe hammers across the end of a window, whether it follows the clock's seconds or the first request.
func slidingProbe() probe {
	return timeProbe(probe{
		name: "Sliding second",
		what: fmt.Sprintf(
			"A limit of %d a second, with a burst of %d if the limiter has bursts, under continuous requests. "+
				"Correct: no second admits more than both together.",
			timeRate, timeBurst,
		),
	}, 1, short(900*time.Millisecond), short(
		1300*time.Millisecond,
	), 950*time.Millisecond, func(burst int, at []span) finding {
		n := most(at)
		return finding{fmt.Sprintf("%d in one second, %d allowed", n, timeRate+burst), n <= timeRate+burst}
	})
}

// idleProbe checks that unused tokens do not accumulate beyond the burst.
func idleProbe() probe {
	return timeProbe(probe{
		name: "Idle, then a burst",
		what: "The same limit, drained, left idle for 2 s, then under continuous requests. Correct: at most the " +
			"burst at once, plus what is issued meanwhile.",
	}, 20, short(2*time.Second), short(300*time.Millisecond), 200*time.Millisecond, func(burst int, at []span) finding {
		if len(at) == 0 {
			return finding{"nothing admitted", false}
		}
		took := at[len(at)-1][1] - at[0][0]
		allowed := burst + 1 + int(took*timeRate/time.Second)
		if burst == 0 {
			allowed = timeRate
		}
		return finding{
			fmt.Sprintf("%d in %d ms, %d allowed", len(at), took.Milliseconds(), allowed), len(at) <= allowed,
		}
	})
}

// short returns d, or in a test a fiftieth of it.
func short(d time.Duration) func(*env) time.Duration {
	return func(e *env) time.Duration {
		if e.quick {
			return d / 50
		}
		return d
	}
}
