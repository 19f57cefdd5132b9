package redis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis"
)

// The usual recipe for a limit of concurrency: a sorted set of holders by when they expire. ARGV: the holder, how long it
// holds in ms, and how many may. A holder that is still there renews with ZADD, and gives back with ZREM.
var recipe = rueidis.NewLuaScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
	return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`)

// BenchmarkSlots compares slots with the recipe in alternating rounds: a slot is taken and given back, of one bucket and
// of one in 1,000. More than 1 means that weir is faster.
//
// With holders, 10,000 slots of one bucket are held for a minute each, by one process: each is taken, renewed and given
// back once in that time. The recipe renews each holder by itself, every third of the 30 s after which it would be gone.
// A process of weir renews all in each heal time, together.
func BenchmarkSlots(b *testing.B) {
	b.Run("callers=64", func(b *testing.B) { benchSlots(b, 64, 1, 0) })
	b.Run("callers=256", func(b *testing.B) { benchSlots(b, 256, 1, 0) })
	b.Run("callers=256/buckets=1000", func(b *testing.B) { benchSlots(b, 256, 1000, 0) })
	b.Run("callers=256/holders=10000", func(b *testing.B) { benchSlots(b, 256, 1, 10_000) })
}

func benchSlots(b *testing.B, callers, buckets, holders int) {
	s := start(b)
	st := open(b, redis.Config{Address: "redis://" + s.Addr, Connections: 2, CallTimeout: time.Minute})
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, PipelineMultiplex: 1,
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx, limit := b.Context(), store.Slots("parallel", 20_000*1000, 30*time.Second)
	debit := func(k int, amount int64, h *store.Hold) store.Debit {
		return store.Debit{
			Bucket:  store.Bucket{Namespace: "n", Entity: fmt.Sprint("user-", k), Resource: "api"},
			Charges: []store.Charge{{Limit: limit, Amount: amount * 1000, Hold: h}},
		}
	}
	seize := func(k int, amount int64) *store.Hold {
		out, err := st.Take(ctx, store.Take{Debits: []store.Debit{debit(k, amount, nil)}})
		if err != nil || !out.Allowed {
			b.Errorf("%+v, %v", out, err)
			return nil
		}
		return out.Levels[0].Hold
	}
	settle := func(k int, amount int64, h *store.Hold) *store.Hold {
		out, err := st.Settle(ctx, store.Settle{Debits: []store.Debit{debit(k, amount, h)}})
		if err != nil || out.Levels[0].Refused {
			b.Errorf("%+v, %v", out, err)
			return nil
		}
		return out.Levels[0].Hold
	}
	ours := func(int) {
		k := rand.IntN(buckets)
		if h := seize(k, 1); h != nil {
			settle(k, -1, h)
		}
	}
	command := func(cmd rueidis.Completed) {
		if err := c.Do(ctx, cmd).Error(); err != nil {
			b.Error(err)
		}
	}
	name := func(k int) string { return fmt.Sprint("recipe:", k) }
	renewed := func(i int) {
		command(c.B().Zadd().Key(name(0)).Xx().ScoreMember().ScoreMember(float64(time.Now().UnixMilli()+30_000), fmt.Sprint("holder-", i%holders)).Build())
	}
	theirs := func(i int) {
		k, id := rand.IntN(buckets), fmt.Sprint("id-", i)
		if n, err := recipe.Exec(ctx, c, []string{name(k)}, []string{id, "30000", "20000"}).AsInt64(); err != nil || n != 1 {
			b.Errorf("%d, %v", n, err)
		}
		for k := range 5 { // after 10, 20, 30, 40 and 50 s
			if holders > 0 {
				renewed(5*i + k)
			}
		}
		command(c.B().Zrem().Key(name(k)).Member(id).Build())
	}
	var hold *store.Hold
	if holders > 0 {
		hold = seize(0, int64(holders))
		each(64, holders, func(i int) {
			command(c.B().Zadd().Key(name(0)).ScoreMember().ScoreMember(float64(time.Now().UnixMilli()+600_000), fmt.Sprint("holder-", i)).Build())
		})
	}
	const rounds = 8
	n := b.N/rounds + 1
	var took, served [2]time.Duration
	for range rounds {
		for k, call := range []func(int){ours, theirs} {
			before, began := busy(b, s), time.Now()
			each(callers, n, call)
			for i := 0; k == 0 && i < 2*n && holders > 0; i += holders { // twice a minute, if not all are held by one process
				hold = settle(0, int64(holders), hold)
			}
			took[k] += time.Since(began)
			served[k] += busy(b, s) - before
		}
	}
	done := float64(rounds * n)
	b.ReportMetric(done/took[0].Seconds(), "slots/s")
	b.ReportMetric(done/took[1].Seconds(), "recipe/s")
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "slots/recipe")
	b.ReportMetric(served[0].Seconds()*1e6/done, "slots-server-µs")
	b.ReportMetric(served[1].Seconds()*1e6/done, "recipe-server-µs")
	b.ReportMetric(0, "ns/op")
}

var cpu = []string{"used_cpu_sys", "used_cpu_user"}

// busy returns the CPU time that the server has used.
func busy(t testing.TB, s server) (d time.Duration) {
	t.Helper()
	text := s.do(t, "INFO", "cpu")
	for _, name := range cpu {
		d += cpuTime(t, text, name)
	}
	return d
}

func cpuTime(t testing.TB, info, name string) time.Duration {
	t.Helper()
	_, rest, _ := strings.Cut(info, name+":")
	value, _, _ := strings.Cut(rest, "\r")
	d, err := time.ParseDuration(value + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}
