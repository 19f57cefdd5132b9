package manifest_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

const chargedText = `namespace: default
resources:
  plain: {limits: {rpd: 1M/day@UTC}}
  both: {group: frontier, limits: {rpd: 1M/day@UTC}}
  grouped: {group: frontier}
  useless: {group: nothing, limits: {rpd: 1M/day@UTC}}
groups:
  frontier: {limits: {rpd: 1M/day@UTC}}
entities:
  team: {name: Team, total: {limits: {rpd: 1M/month@Europe/Berlin}}}
  key: {parent: team, cascade: true, total: {limits: {rpd: 1M/day@UTC}}}
`

// charged are warm requests, and how many buckets they are charged to.
var charged = []struct {
	name, entity, resource string
	buckets                int
}{
	{"a resource", "alone", "plain", 1},
	{"a group without limits", "alone", "useless", 1},
	{"a group", "alone", "grouped", 1},
	{"a resource and its group", "alone", "both", 2},
	{"a resource and the total", "team", "plain", 2},
	{"a resource, its group and the total", "team", "both", 3},
	{"a key and its team, on the group and the total", "key", "grouped", 4},
	{"a key and its team, on all three", "key", "both", 6},
}

// takes counts the decisions that a store is asked for.
type takes struct {
	faulty
	taken atomic.Int64
}

func (s *takes) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	s.taken.Add(1)
	return s.Store.Take(ctx, t)
}

// TestCharged holds what groups and totals cost: a request with limits on its resource only costs one write, as it did
// before there were any, and each group or total with limits one more on DynamoDB, and nothing elsewhere. Once limits are
// cached, nothing is read.
func TestCharged(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, st store.Store, spent func() (writes int), each func(buckets int) int) {
		t.Helper()
		counted := &takes{faulty: faulty{Store: st}}
		lim := limiterOn(t, counted)
		apply(t, lim, decodeOne(t, chargedText))
		for _, c := range charged {
			req := weir.Request{Entity: c.entity, Resource: c.resource, Tokens: weir.Tokens{"rpd": 1}}
			for range 2 {
				_, err := lim.Acquire(t.Context(), req)
				must(t, err)
			}
			writes, reads, asked := spent(), counted.reads.Load(), counted.taken.Load()
			lease, err := lim.Acquire(t.Context(), req)
			must(t, err)
			if n := len(lease.Decision().Statuses); n != c.buckets {
				t.Errorf("%s: charged to %d buckets, want %d", c.name, n, c.buckets)
			}
			if got, want := spent()-writes, each(c.buckets); got != want {
				t.Errorf("%s: %d writes, want %d", c.name, got, want)
			}
			if reads, asked := counted.reads.Load()-reads, counted.taken.Load()-asked; reads != 0 || asked != 1 {
				t.Errorf("%s: %d reads, %d decisions", c.name, reads, asked)
			}
		}
	}
	one := func(int) int { return 1 }
	nothing := func() int { return 0 } // is counted: all of it is in the process
	none := func(int) int { return 0 }
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		check(t, memory.New(nil), nothing, none)
	})
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		st, err := disk.Open(t.TempDir(), &disk.Config{Mode: disk.Off})
		must(t, err)
		check(t, st, nothing, none)
	})
	t.Run("dynamodb", func(t *testing.T) {
		t.Parallel()
		fake := new(dynamotest.Fake)
		check(t, onFake(t, fake, nil), func() (n int) {
			for _, calls := range fake.Calls() {
				n += calls
			}
			return n
		}, func(buckets int) int { return buckets })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		st, err := redis.Open(t.Context(), redis.Config{Address: "redis://" + server.Addr, CallTimeout: patient})
		must(t, err)
		scripts := regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)
		check(t, st, func() int {
			out, err := server.Do(t.Context(), "INFO", "commandstats")
			must(t, err)
			m := scripts.FindStringSubmatch(out)
			if m == nil {
				return 0
			}
			n, err := strconv.Atoi(m[1])
			must(t, err)
			return n
		}, one)
	})
}

// onFake opens a store on a new table, as users have it.
func onFake(t testing.TB, fake *dynamotest.Fake, now func() time.Time) store.Store {
	t.Helper()
	_, err := dynamodb.Create(t.Context(), unscanned{fake}, "weir", dynamodb.CreateConfig{})
	must(t, err)
	st, err := dynamodb.New(dynamodb.Config{Client: fake, Table: "weir", Now: now, CallTimeout: patient, WriteTimeout: patient})
	must(t, err)
	return st
}

// TestChargedTogether: on DynamoDB, requests of many keys that arrive while their team's buckets are written share the next
// write of each.
func TestChargedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := new(dynamotest.Fake)
		lim := limiterOn(t, onFake(t, fake, nil))
		lines := []string{
			"namespace: default", "resources: {o3: {group: frontier}}", "entities:",
			"  team: {name: Team, groups: {frontier: {limits: {rpd: 1M/day@UTC}}}, total: {limits: {rpd: 1M/day@UTC}}}",
		}
		for i := range 50 {
			lines = append(lines, fmt.Sprintf("  key-%d: {parent: team, cascade: true, total: {limits: {rpd: 1000/day@UTC}}}", i))
		}
		apply(t, lim, decodeOne(t, strings.Join(lines, "\n")))
		ask := func() {
			var group sync.WaitGroup
			for i := range 50 {
				group.Go(func() {
					_, err := lim.Acquire(t.Context(), weir.Request{Entity: fmt.Sprint("key-", i), Resource: "o3", Tokens: weir.Tokens{"rpd": 1}})
					must(t, err)
				})
			}
			group.Wait()
		}
		ask()
		var mu sync.Mutex
		writes := make(map[string]int)
		fake.Before = func(op string, in any) error {
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			name := op
			if u, ok := in.(*sdk.UpdateItemInput); ok {
				name, _, _ = strings.Cut(u.Key["PK"].(*types.AttributeValueMemberS).Value, "-")
			}
			writes[name]++
			return nil
		}
		ask()
		for name, n := range writes {
			switch team := strings.Contains(name, "#team#"); {
			case team && n <= 2, strings.HasSuffix(name, "#key") && n == 50:
			default:
				t.Errorf("%d writes of %s", n, name)
			}
		}
		if len(writes) != 3 {
			t.Errorf("writes: %v", writes)
		}
	})
}
