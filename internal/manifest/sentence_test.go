package manifest_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/raced"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
	"github.com/weirlimits/weir/store/storetest"
)

// timed are the stores on a clock that a test turns by hand, with two clients of the same data where there can be two.
var timed = []struct {
	name  string
	still bool  // it needs no real time, and runs in a bubble
	pace  int64 // how much longer than in memory a test should let pass between requests
	legs  bool  // buckets are debited one by one: what a refused take has debited is returned in the background
	again int   // how often to repeat what is refused meanwhile
	open  func(t testing.TB, clock *storetest.Clock) []store.Store
}{
	{"memory", true, 1, false, 0, func(_ testing.TB, clock *storetest.Clock) []store.Store {
		return []store.Store{memory.New(&memory.Config{Now: clock.Now})}
	}},
	{"disk", false, 1, false, 0, func(t testing.TB, clock *storetest.Clock) []store.Store {
		st, err := disk.Open(t.TempDir(), &disk.Config{Mode: disk.Off, Now: clock.Now})
		must(t, err)
		return []store.Store{st}
	}},
	{"dynamodb", true, 2, true, 0, func(t testing.TB, clock *storetest.Clock) []store.Store {
		fake := new(dynamotest.Fake)
		_, err := dynamodb.Create(t.Context(), unscanned{fake}, "weir", dynamodb.CreateConfig{})
		must(t, err)
		return onTable(t, fake, "weir", clock)
	}},
	{"dynamodb engine", false, 20, true, 1000, func(t testing.TB, clock *storetest.Clock) []store.Store {
		client, table := dynamotest.Client(t, dynamotest.Engine(t)), dynamotest.Table(t)
		_, err := dynamodb.Create(t.Context(), client, table, dynamodb.CreateConfig{})
		must(t, err)
		return onTable(t, client, table, clock)
	}},
	{"redis", false, 1, false, 0, func(t testing.TB, clock *storetest.Clock) (both []store.Store) {
		server := redistest.Start(t)
		for range 2 {
			st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + server.Addr, Now: clock.Now, CallTimeout: patient})
			must(t, err)
			both = append(both, st)
		}
		return both
	}},
}

// onTable opens two clients of a table that repeat no refusals from memory, so that each is as exact as one alone.
func onTable(t testing.TB, client dynamodb.API, table string, clock *storetest.Clock) (both []store.Store) {
	t.Helper()
	for range 2 {
		st, err := dynamodb.New(dynamodb.Config{
			Client: client, Table: table, Now: clock.Now, CallTimeout: patient, WriteTimeout: patient, RejectionTTL: -1, Guard: -1,
		})
		must(t, err)
		both = append(both, st)
	}
	return both
}

// declare applies the manifest of the guide, in a namespace and a time zone, and adds keys to the team.
func declare(t testing.TB, lim *weir.Limiter, namespace, zone string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/configure/budgets.md")
	must(t, err)
	_, text, _ := strings.Cut(string(page), "```yaml budgets.limits.yaml\n")
	text, _, found := strings.Cut(text, "```\n")
	if !found || strings.Count(text, "\n") > 11 {
		t.Fatalf("the guide has no manifest of ten lines: %s", text)
	}
	for old, with := range map[string]string{"Europe/Berlin": zone, "namespace: default": "namespace: " + namespace} {
		if !strings.Contains(text, old) {
			t.Fatalf("no %s", old)
		}
		text = strings.ReplaceAll(text, old, with)
	}
	apply(t, lim, decodeOne(t, text))
	for _, key := range keys[1:] {
		must(t, admin.New(lim.In(namespace)).Entities.Create(t.Context(), admin.Entity{ID: key, Parent: "team-a", Cascade: true}))
	}
}

var (
	keys  = []string{"key-1", "key-2", "key-3"}
	users = []string{"user-77", "user-123"}
)

// TestSentence holds what quotas are for, over a year of random traffic in three time zones, on every store: "5,000 dollars
// a month for the team, 60 requests a minute for each of its keys, gpt-4o and o3 together at most 1M tokens a day,
// everybody on pro ten times that, and user-123 as much as she needs until Friday". A reference of its own decides beside it: nothing is admitted beyond a month, a day or
// a minute, nothing refused that fits, and each refusal has the instant at which the request fits; except on DynamoDB, where
// one bucket may refuse before the others are asked.
func TestSentence(t *testing.T) {
	t.Parallel()
	raced.Skip(t)
	for _, s := range timed {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			play := func(t *testing.T) {
				seed := rand.Uint64()
				t.Log("seed", seed)
				y := &year{
					T: t, r: rand.New(rand.NewPCG(seed, 0)), clock: storetest.NewClock(newYear), still: s.still, pace: s.pace, legs: s.legs,
					again: s.again,
				}
				if s.still {
					y.settle = synctest.Wait
					time.Sleep(time.Until(newYear)) // real time: none, in a bubble
				}
				y.play(s.open(t, y.clock))
			}
			if s.still {
				synctest.Test(t, play)
			} else {
				play(t)
			}
		})
	}
}

// newYear is when the year begins: not at a boundary.
var newYear = time.Date(2026, time.January, 1, 7, 8, 9, 0, time.UTC)

// year is the simulated year.
type year struct {
	*testing.T

	r       *rand.Rand
	clock   *storetest.Clock
	still   bool
	pace    int64
	legs    bool
	again   int
	settle  func()
	tenants []*tenant
	held    []holding
	asked   int
}

// holding is what a lease holds.
type holding struct {
	*weir.Lease
	of      *tenant
	charges []*charge
	at      time.Time

	resource string
	usd      int64
	team     bool
}

func (y *year) play(stores []store.Store) {
	var lims []*weir.Limiter
	for _, st := range stores {
		lims = append(lims, limiterOn(y, st))
	}
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Asia/Kolkata"} {
		y.join(lims, zone)
	}
	for y.clock.Now().Before(newYear.AddDate(1, 0, 0)) {
		y.pass()
		y.request()
	}
	for _, n := range y.tenants { // who may have made none after Friday, where requests are few
		y.follow(n)
		y.decide(n, []string{"user-123"}, "gpt-4o", weir.Tokens{"rpm": 1, "tpd": 1000})
	}
	y.judge()
}

func (y *year) join(lims []*weir.Limiter, zone string) {
	loc, err := time.LoadLocation(zone)
	must(y, err)
	n := &tenant{zone: loc, limits: map[string]*charge{}, usd: map[string]map[string]int64{}, refused: map[string]int{}}
	name := fmt.Sprint("tenant-", len(y.tenants))
	declare(y, lims[0], name, zone)
	for _, lim := range lims {
		n.lims = append(n.lims, lim.In(name))
	}
	n.month("team-a", 5000)
	n.day("team-a", 1_000_000)
	for _, key := range keys {
		n.minute(key, 60)
		n.day(key, 1_000_000)
	}
	n.month("user-77", 50_000)
	n.day("user-77", 10_000_000)
	n.minute("user-77", 600)
	n.day("user-123", 1_000_000_000)
	n.minute("user-123", 1_000_000)
	n.friday = time.Date(2026, time.December, 4, 18, 0, 0, 0, loc)
	y.tenants = append(y.tenants, n)
}

// pass lets time pass: moments, minutes, half a day, or until right before, at or after a midnight.
func (y *year) pass() {
	upTo := func(d time.Duration) { y.to(y.clock.Now().Add(time.Duration(y.r.Int64N(int64(d))))) }
	switch k := y.r.IntN(20); {
	case k < 11:
		upTo(2 * time.Second)
	case k < 16:
		upTo(time.Duration(y.pace) * 10 * time.Minute)
	case k < 19:
		upTo(time.Duration(y.pace) * 12 * time.Hour)
	default:
		now, n := y.clock.Now(), y.tenants[y.r.IntN(len(y.tenants))]
		if to := n.friday.Sub(now); to > 0 && to < time.Duration(y.pace)*24*time.Hour {
			y.to(n.friday.Add(time.Duration(y.r.IntN(3) - 1)))
			break
		}
		next := (&quota{months: y.r.IntN(3) == 0}).next(now.Add(1), n.zone)
		if next.Sub(now) < time.Duration(y.pace)*48*time.Hour {
			y.to(next.Add(time.Duration(y.r.IntN(3) - 1)))
		}
	}
	for _, n := range y.tenants { // where real time passes, processes are not at the store's time to the minute
		if to := n.friday.Sub(y.clock.Now()); to > 0 && to < time.Minute && !y.still {
			y.to(n.friday)
		}
	}
}

// to lets time pass until an instant: in a bubble for the processes, too.
func (y *year) to(at time.Time) {
	if y.still {
		time.Sleep(time.Until(at)) // real time: none, in a bubble
	}
	y.clock.Set(at)
}

// follow passes Friday. Processes outside of a bubble then look at the store's clock, as if a bucket had answered that other
// limits hold.
func (y *year) follow(n *tenant) {
	was := n.later
	n.pass(y.clock.Now())
	for _, lim := range n.lims {
		if y.still {
			break
		}
		p, err := parts.Of(lim).Policies.Resolve(y.Context(), "user-123", "clock", false)
		must(y, err)
		if p.Stale(&store.PhaseError{At: y.clock.Now()}); n.later != was {
			parts.Of(lim).Policies.Expire()
		}
	}
}

// request makes a request, or several at once, and now and then gives back what one has taken.
func (y *year) request() {
	if len(y.held) > 0 && y.r.IntN(8) == 0 {
		y.giveBack()
	}
	n := y.tenants[y.r.IntN(len(y.tenants))]
	old := n.limits["user-123 rpm"].rate
	y.follow(n)
	chain, times := []string{keys[y.r.IntN(len(keys))], "team-a"}, int64(1)
	if y.r.IntN(3) == 0 {
		chain, times = []string{users[y.r.IntN(len(users))]}, 10
	}
	if her := chain[0] == "user-123"; her && n.later {
		if times = 1; old.level > old.issued(y.clock.Now()) {
			return // how soon her last moments are forgotten depends on when her bucket notices
		}
	}
	for range 1 + y.r.IntN(6) {
		resource := fmt.Sprint("resource-", y.r.IntN(20))
		tokens := weir.Tokens{"usd": times * y.r.Int64N(60*y.pace), "rpm": times * (1 + y.r.Int64N(30))}
		if y.r.IntN(2) == 0 {
			resource = []string{"gpt-4o", "o3"}[y.r.IntN(2)]
			tokens["tpd"] = times * (1 + y.r.Int64N(min(400_000*y.pace, 1_000_000)))
		}
		if chain[0] == "user-123" { // she has no budget
			delete(tokens, "usd")
		}
		y.decide(n, chain, resource, tokens)
	}
}

// decide makes a request, and compares the answer with the reference.
func (y *year) decide(n *tenant, chain []string, resource string, tokens weir.Tokens) {
	y.Helper()
	var charges []*charge
	wait, now := time.Duration(0), y.clock.Now()
	for _, entity := range chain {
		for name, amount := range tokens {
			l := n.limits[entity+" "+name]
			if l == nil {
				continue
			}
			c := *l
			c.tokens = amount
			charges = append(charges, &c)
			if w := c.wait(now, n.zone); w > 0 {
				wait = max(wait, w)
				n.refused[name]++
			}
		}
	}
	y.asked++
	her := &n.her[0]
	if n.later {
		her = &n.her[1]
	}
	if chain[0] == "user-123" {
		if her.requests++; wait > 0 {
			her.refused++
		}
	}
	lease, err := y.ask(n, weir.Request{Entity: chain[0], Resource: resource, Tokens: tokens}, wait)
	if err != nil {
		y.Fatalf("%s, %v on %s takes %v: %v", now.In(n.zone), chain, resource, tokens, err)
	}
	if lease == nil {
		return
	}
	for _, c := range charges {
		c.spend(now, n.zone)
	}
	h := holding{lease, n, charges, now, resource, tokens["usd"], chain[len(chain)-1] == "team-a"}
	n.book(&h, now, h.usd)
	if chain[0] == "user-123" {
		her.tokens += int(tokens["tpd"])
	} else if y.r.IntN(8) == 0 {
		y.held = append(y.held, h)
	}
}

// ask makes a request that should be refused for a time, or admitted if that is 0. It returns an error if it is not.
func (y *year) ask(n *tenant, req weir.Request, want time.Duration) (*weir.Lease, error) {
	lim := n.lims[y.r.IntN(len(n.lims))]
	for i := 0; ; i++ {
		lease, err := lim.Acquire(y.Context(), req)
		if y.settle != nil {
			y.settle()
		}
		over := new(weir.ExceededError)
		switch refused := errors.As(err, &over); {
		case err != nil && !refused:
			return nil, err
		case err == nil && want == 0:
			return lease, nil
		case err == nil:
			return nil, fmt.Errorf("admitted, want a refusal for %v", want)
		case want > 0 && (over.RetryAfter == want || y.legs && over.RetryAfter > 0):
			return nil, nil
		case i >= y.again:
			return nil, fmt.Errorf("refused for %v, want %v: %w", over.RetryAfter, want, err)
		}
		time.Sleep(time.Millisecond) // real time: an engine is about to hold what is given back
	}
}

func (y *year) giveBack() {
	i := y.r.IntN(len(y.held))
	h := y.held[i]
	y.held = slices.Delete(y.held, i, i+1)
	must(y, h.Rollback(y.Context()))
	if y.settle != nil {
		y.settle()
	}
	now := y.clock.Now()
	for _, c := range h.charges {
		c.giveBack(h.at, now, h.of.zone)
	}
	h.of.book(&h, now, -h.usd)
}

// judge checks that the traffic has put every limit to the test, and the months of the teams by themselves.
func (y *year) judge() {
	for _, n := range y.tenants {
		spent, full, most := int64(0), 0, 0
		for month, by := range n.usd {
			sum := int64(0)
			for _, usd := range by {
				sum += usd
			}
			if spent += sum; sum > 5000 {
				y.Errorf("%s: %d USD in %s", n.zone, sum, month)
			} else if sum > 4500 {
				full++
			}
			most = max(most, len(by))
		}
		y.Logf("%s: %d USD in %d months, of which %d full, over up to %d resources; refused by %v", n.zone, spent, len(n.usd), full, most, n.refused)
		if most*int(y.pace) < 20 || full < len(n.usd)/4 || n.refused["usd"] == 0 || n.refused["tpd"] == 0 || n.refused["rpm"] == 0 {
			y.Errorf("%s: the traffic does not test every limit", n.zone)
		}
	}
	hers := [2]struct{ tokens, requests, refused int }{}
	for _, n := range y.tenants {
		for i := range hers {
			hers[i].tokens += n.her[i].tokens
			hers[i].requests += n.her[i].requests
			hers[i].refused += n.her[i].refused
		}
	}
	y.Logf("%d requests; user-123, before Friday and after: %+v", y.asked, hers)
	if until, then := hers[0], hers[1]; until.refused > 0 || until.tokens < 1_000_000 || then.requests == 0 || then.refused == 0 && y.pace < 3 {
		y.Error("the traffic does not test what ends on Friday")
	}
}
