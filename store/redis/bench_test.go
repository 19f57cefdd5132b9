package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

const benchKeys = 100_000

// BenchmarkTake measures takes by 64 callers over 100,000 keys, alternating with two scripts that use the same client
// library and as many connections: a typical limiter of one limit, and a plain counter. The ratios divide the rate of
// takes by theirs; server time and process time are per take.
func BenchmarkTake(b *testing.B) {
	b.Run("limits=1", func(b *testing.B) { benchTake(b, benchKeys, 1, 64, false) })
	b.Run("limits=3/parent", func(b *testing.B) { benchTake(b, benchKeys, 3, 64, true) })
	b.Run("limits=1/keys=1", func(b *testing.B) { benchTake(b, 1, 1, 64, false) })
	b.Run("limits=3/parent/callers=1", func(b *testing.B) { benchTake(b, benchKeys, 3, 1, true) })
}

// incr counts and limits nothing.
var incr = rueidis.NewLuaScript(`local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end return n`)

// gcra is one limit the way that limiters in Redis usually implement it. ARGV: burst, rate, period in seconds, cost.
var gcra = rueidis.NewLuaScript(`
local interval, cost = ARGV[3] / ARGV[2], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = (time[1] - 1704067200) + time[2] / 1000000
local tat = redis.call('GET', KEYS[1])
tat = math.max(tat and tonumber(tat) or now, now)
local new = tat + interval * cost
local room = now - (new - interval * ARGV[1])
if room < 0 then
	return {0, 0, tostring(-room), tostring(tat - now)}
end
local reset = new - now
if reset > 0 then
	redis.call('SET', KEYS[1], new, 'EX', math.ceil(reset))
end
return {cost, room / interval, '-1', tostring(reset)}`)

func benchTake(b *testing.B, keys, limits, callers int, parent bool) {
	s := start(b)
	const connections = 2
	st := open(b, redis.Config{Address: "redis://" + s.Addr, Connections: connections, CallTimeout: 2 * time.Hour})
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()

	charges := make([]store.Charge, limits)
	for i := range charges {
		charges[i] = store.Charge{Limit: &store.Limit{Name: fmt.Sprint("limit-", i), Amount: 1e9 + int64(i), Period: time.Minute, Burst: 1e12}, Amount: 1000}
	}
	takes := make([]store.Take, keys)
	for i := range takes {
		takes[i].Debits = []store.Debit{{Bucket: store.Bucket{Namespace: "n", Entity: fmt.Sprint("user-", i), Resource: "api"}, Charges: charges}}
		if parent {
			takes[i].Debits = append(takes[i].Debits, store.Debit{
				Bucket: store.Bucket{Namespace: "n", Entity: fmt.Sprint("team-", i%100), Resource: "api"}, Charges: charges,
			})
		}
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // the limiter's calls have a deadline, too
	defer cancel()
	ours := func(i int) {
		if out, err := st.Take(ctx, takes[i]); err != nil || !out.Allowed {
			b.Errorf("allowed %t, error %v", out.Allowed, err)
		}
	}
	script := func(l *rueidis.Lua, args ...string) func(int) {
		return func(i int) {
			if err := l.Exec(ctx, c, []string{args[0] + strconv.Itoa(i)}, args[1:]).Error(); err != nil {
				b.Error(err)
			}
		}
	}
	all := []struct {
		name string
		call func(int)
		took time.Duration
	}{{name: "takes", call: ours}, {name: "gcra", call: script(gcra, "gcra:", "1000000000", "1000000", "60", "1")}, {name: "incr", call: script(incr, "incr:", "60000")}}
	// Create all keys before measuring.
	for _, a := range all {
		each(64, keys, a.call)
	}
	const rounds = 4
	n := (b.N + rounds - 1) / rounds
	var server, client float64
	b.ResetTimer()
	for range rounds {
		for k := range all {
			if k == 1 {
				b.StopTimer()
			}
			usec, user := served(b, s), used()
			began := time.Now()
			each(callers, n, func(int) { all[k].call(rand.IntN(keys)) })
			all[k].took += time.Since(began)
			if k == 0 {
				server, client = server+served(b, s)-usec, client+used()-user
			}
		}
		b.StartTimer()
	}
	done := float64(rounds * n)
	for _, a := range all {
		b.ReportMetric(done/a.took.Seconds(), a.name+"/s")
	}
	b.ReportMetric(all[1].took.Seconds()/all[0].took.Seconds(), "of-gcra")
	b.ReportMetric(all[2].took.Seconds()/all[0].took.Seconds(), "of-incr")
	b.ReportMetric(server/done, "server-µs")
	b.ReportMetric(client/done, "client-µs")
	b.ReportMetric(0, "ns/op")
}

var evalsha = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// served returns how many µs the server has spent running scripts.
func served(t testing.TB, s server) float64 {
	m := evalsha.FindStringSubmatch(s.do(t, "INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// each makes n calls of f from all callers together.
func each(callers, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
