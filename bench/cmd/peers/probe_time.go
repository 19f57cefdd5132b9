package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/bench/internal/inprocess"
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
	open  func(e *harness.Env) (asker, error)
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
		{"weir in memory", timeBurst, func(e *harness.Env) (asker, error) {
			lim, err := weir.New(weir.Config{Store: memory.New(nil)})
			if err != nil {
				return nil, err
			}
			e.Defer(lim.Close)
			return one(lim), admin.New(lim).Limits.Set(e.Ctx, drained.scope, timeQuota.limit())
		}},
		{"weir on DynamoDB", timeBurst, func(e *harness.Env) (asker, error) {
			lim, err := single(e)
			if err != nil {
				return nil, err
			}
			return one(lim), admin.New(lim).Limits.Set(e.Ctx, drained.scope, timeQuota.limit())
		}},
	}
}

// timesInMemory are the peers without a store.
func timesInMemory() []timeSubject {
	return []timeSubject{
		{"x/time/rate", timeBurst, func(*harness.Env) (asker, error) {
			return inprocess.XTime(1, timeRate, timeBurst), nil
		}},
		{"uber/ratelimit", timeBurst, func(*harness.Env) (asker, error) { // waits, with a slack of 10
			return inprocess.Uber(1, timeRate), nil
		}},
		{"go-limiter", 0, func(e *harness.Env) (asker, error) { return inprocess.GoLimiter(e, timeRate) }},
		{"throttled in memory", timeBurst, func(*harness.Env) (asker, error) {
			return inprocess.Throttled(10, timeRate, timeBurst-1)
		}},
	}
}

func timesOnRedis() (subjects []timeSubject) {
	for _, c := range onRedis {
		subjects = append(subjects, timeSubject{c.name, timeBurst, func(e *harness.Env) (asker, error) {
			addr, err := engine.Redis(e)
			if err != nil {
				return nil, err
			}
			return c.open(e, addr, timeQuota)
		}})
	}
	return append(subjects, timeSubject{"envoyproxy/ratelimit", 0, func(e *harness.Env) (asker, error) {
		addr, err := engine.Redis(e)
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
func hammer(e *harness.Env, ask asker, length time.Duration) (at []span, err error) {
	began := time.Now()
	for {
		before := time.Since(began)
		if before >= length {
			return at, nil
		}
		ok, err := ask(e.Ctx, "alice")
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
func hammerZae(e *harness.Env, idle, length time.Duration, drain int) (at []span, err error) {
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
	p probe, drain int, idle, length func(e *harness.Env) time.Duration, start time.Duration,
	judge func(burst int, at []span) finding,
) probe {
	for _, s := range timeSubjects() {
		p.subjects = append(p.subjects, subject{s.name, func(e *harness.Env) (finding, error) {
			ask, err := s.open(e)
			if err != nil {
				return finding{}, err
			}
			if !e.Quick {
				until(start)
			}
			try(e.Ctx, ask, "alice", drain)
			time.Sleep(idle(e)) // real time: as above
			at, err := hammer(e, ask, length(e))
			return judge(s.burst, at), err
		}})
	}
	p.subjects = append(p.subjects, subject{"zae-limiter", func(e *harness.Env) (finding, error) {
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
func short(d time.Duration) func(*harness.Env) time.Duration {
	return func(e *harness.Env) time.Duration {
		if e.Quick {
			return d / 50
		}
		return d
	}
}
