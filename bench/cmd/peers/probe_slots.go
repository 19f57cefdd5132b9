package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/store/redis"
)

// The limit of the probes of slots, and how many processes share it.
const (
	slotsMost      = 5
	slotsProcesses = 16
	slotsHeal      = 16 * time.Second // of weir
)

// errHeld reports that all slots are held.
var errHeld = errors.New("all slots are held")

// seize takes a slot, and returns what gives it back. If there is none, the error is errHeld.
type seize func(ctx context.Context) (release func(context.Context) error, err error)

// onSlots are the limiters of what is held at once, each on a Redis that several processes share.
var onSlots = []struct {
	name string
	open func(ctx context.Context, addr string) (seize, error)
}{
	{"weir on Redis", weirSlots},
	{"sorted set, 30 s, renewed", sortedSet(30*time.Second, true)},
	{"sorted set, 1 h, as LiteLLM 1.109 has it", sortedSet(time.Hour, false)},
}

func weirSlots(ctx context.Context, addr string) (seize, error) {
	st, err := redis.Open(ctx, redis.Config{Address: "redis://" + addr})
	if err != nil {
		return nil, err
	}
	lim, err := weir.New(weir.Config{Store: st, StoreTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	limit := weir.Limit{Name: "parallel", Slots: slotsMost, Heal: slotsHeal}
	if err := admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "api"}, limit); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (func(context.Context) error, error) {
		lease, err := lim.Acquire(ctx, weir.Request{Entity: "alice", Resource: "api"})
		if errors.Is(err, weir.ErrExceeded) {
			return nil, errHeld
		}
		if err != nil {
			return nil, err
		}
		return lease.Close, nil
	}, nil
}

// seizeScript is the usual recipe: a set of the holders, by when they expire. ARGV: the holder, after how many seconds
// it expires, and how many may hold.
var seizeScript = goredis.NewScript(`
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
	return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1`)

// sortedSet is the recipe with holders that expire, and that renew every third of that time or never.
func sortedSet(expires time.Duration, renewed bool) func(context.Context, string) (seize, error) {
	return func(_ context.Context, addr string) (seize, error) {
		const key = "holders"
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		return func(ctx context.Context) (func(context.Context) error, error) {
			id := strconv.FormatUint(rand.Uint64(), 36)
			n, err := seizeScript.Run(ctx, c, []string{key}, id, expires.Seconds(), slotsMost).Int()
			if err == nil && n == 0 {
				err = errHeld
			}
			if err != nil {
				return nil, err
			}
			held, end := context.WithCancel(ctx)
			if renewed {
				go renew(held, c, key, id, expires)
			}
			return func(ctx context.Context) error {
				end()
				return c.ZRem(ctx, key, id).Err()
			}, nil
		}, nil
	}
}

func renew(ctx context.Context, c *goredis.Client, key, id string, expires time.Duration) {
	ticker := time.NewTicker(expires / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			at := float64(now.Add(expires).UnixMicro()) / 1e6
			_ = c.ZAddXX(ctx, key, goredis.Z{Score: at, Member: id}).Err() // the next one may succeed
			_ = c.Expire(ctx, key, expires).Err()
		}
	}
}

// holderJob is what a process of a probe does: without a time, it takes all slots, and keeps them until it is killed.
// Otherwise, it takes one, keeps it for a moment and gives it back, as often as it can.
type holderJob struct {
	Kind int // in onSlots
	Addr string
	For  time.Duration
}

// holderDid is what it then has done.
type holderDid struct {
	Admitted int
	Most     int64 // that were held at once, as far as it has seen
	Failed   int
}

// asHolder makes this program a process of a probe; its value is a job.
const asHolder = "WEIR_PEERS_AS_HOLDER"

// holder does the job of such a process, and prints what it has done.
func holder(ctx context.Context, text string) error {
	var job holderJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	take, err := onSlots[job.Kind].open(ctx, job.Addr)
	if err != nil {
		return err
	}
	if job.For == 0 {
		for range slotsMost {
			if _, err := take(ctx); err != nil {
				return err
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(holderDid{Admitted: slotsMost}); err != nil {
			return err
		}
		time.Sleep(time.Hour) // real time: until it is killed
		return nil
	}
	return json.NewEncoder(os.Stdout).Encode(churn(ctx, take, job))
}

// churn counts the holders by a number on the server, which each increments once it holds and decrements before it
// gives back: so it never counts too many.
func churn(ctx context.Context, take seize, job holderJob) (did holderDid) {
	const key = "holders now"
	c := goredis.NewClient(&goredis.Options{Addr: job.Addr})
	defer c.Close()
	for n, until := 0, time.Now().Add(job.For); n == 0 || time.Now().Before(until); n++ {
		release, err := take(ctx)
		if errors.Is(err, errHeld) {
			time.Sleep(rand.N(time.Millisecond)) // real time: the subjects have clocks of their own
			continue
		}
		if err == nil {
			did.Admitted++
			var now int64
			now, err = c.Incr(ctx, key).Result()
			did.Most = max(did.Most, now)
			time.Sleep(rand.N(2 * time.Millisecond)) // real time: as above
			err = errors.Join(err, c.Decr(ctx, key).Err(), release(ctx))
		}
		if err != nil {
			did.Failed++
		}
	}
	return did
}

// holding is a process of a probe that runs.
type holding struct {
	cmd *exec.Cmd
	out *json.Decoder
}

func startHolder(e *harness.Env, job holderJob) (*holding, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(e.Ctx, self)
	cmd.Env = append(os.Environ(), asHolder+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &holding{cmd, json.NewDecoder(bufio.NewReader(out))}, run(e, cmd)
}

func (h *holding) did() (did holderDid, err error) { return did, h.out.Decode(&did) }

// slotsProbe tests processes that share slots.
func slotsProbe() probe {
	p := probe{
		name: "At most n at once",
		what: fmt.Sprintf("%d processes share %d slots, and take and give back as fast as they can for 3 s. "+
			"Correct: no more than %d are held at once, and no call ends in an error.",
			slotsProcesses, slotsMost, slotsMost),
	}
	for kind, c := range onSlots {
		p.subjects = append(p.subjects, subject{c.name, func(e *harness.Env) (finding, error) {
			addr, err := engine.Redis(e)
			if err != nil {
				return finding{}, err
			}
			processes := make([]*holding, e.Few(slotsProcesses, 3))
			length := time.Duration(e.Few(3000, 200)) * time.Millisecond
			for i := range processes {
				if processes[i], err = startHolder(e, holderJob{kind, addr, length}); err != nil {
					return finding{}, err
				}
			}
			var all holderDid
			for _, h := range processes {
				did, err := h.did()
				if err != nil {
					return finding{}, err
				}
				all = holderDid{all.Admitted + did.Admitted, max(all.Most, did.Most), all.Failed + did.Failed}
			}
			saw := fmt.Sprintf("%s admitted, at most %d at once", number(float64(all.Admitted)), all.Most)
			if all.Failed > 0 {
				saw += fmt.Sprintf(", %s errors", number(float64(all.Failed)))
			}
			return finding{saw, all.Admitted > 0 && all.Most <= slotsMost && all.Failed == 0}, nil
		}})
	}
	return p
}

// crashProbe tests what becomes of the slots of a process that is killed.
func crashProbe() probe {
	p := probe{
		name: "A holder that is killed",
		what: fmt.Sprintf("A process holds all %d slots for 40 s, which is longer than 30 s and than weir's heal time "+
			"of %d s; then it is killed (kill -9). Correct: nobody else gets a slot while it lives, and all are free "+
			"within a minute of its end. LiteLLM itself does not run: the last one expires as the slots of its "+
			"max_parallel_requests do.",
			slotsMost, int(slotsHeal.Seconds())),
	}
	for kind, c := range onSlots {
		p.subjects = append(p.subjects, subject{c.name, func(e *harness.Env) (finding, error) {
			addr, err := engine.Redis(e)
			if err != nil {
				return finding{}, err
			}
			h, err := startHolder(e, holderJob{Kind: kind, Addr: addr})
			if err != nil {
				return finding{}, err
			}
			if _, err := h.did(); err != nil {
				return finding{}, err
			}
			take, err := c.open(e.Ctx, addr)
			if err != nil {
				return finding{}, err
			}
			early, _, err := takeFor(e, take, short(40*time.Second)(e))
			if err == nil {
				err = h.cmd.Process.Kill()
			}
			if err != nil || early > 0 {
				return finding{fmt.Sprintf("%d given to others while it lived", early), false}, err
			}
			if e.Quick {
				return finding{"none given to others while it lived", true}, nil
			}
			free, took, err := takeFor(e, take, time.Minute)
			if free < slotsMost {
				return finding{fmt.Sprintf("%d free after a minute", free), false}, err
			}
			return finding{fmt.Sprintf("all free after %.0f s", took.Seconds()), true}, err
		}})
	}
	return p
}

// takeFor tries to take all slots for some time, and returns how many it got, and when it had the last.
func takeFor(e *harness.Env, take seize, length time.Duration) (n int, took time.Duration, err error) {
	began := time.Now()
	for n < slotsMost && time.Since(began) < length {
		switch _, err := take(e.Ctx); {
		case err == nil:
			n, took = n+1, time.Since(began)
		case !errors.Is(err, errHeld):
			return n, took, err
		default:
			time.Sleep(100 * time.Millisecond) // real time: as above
		}
	}
	return n, took, nil
}
