package torture_test

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/lab/torture"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/redis"
)

// If these are set, the test binary is a worker on the store that they name.
const (
	endpointEnv = "WEIR_TEST_TORTURE_ENDPOINT"
	tableEnv    = "WEIR_TEST_TORTURE_TABLE"
	redisEnv    = "WEIR_TEST_TORTURE_REDIS"
)

func TestMain(m *testing.M) {
	open := onRedis(os.Getenv(redisEnv))
	if table := os.Getenv(tableEnv); table != "" {
		open = onTable(os.Getenv(endpointEnv), table)
	} else if os.Getenv(redisEnv) == "" {
		os.Exit(m.Run())
	}
	if err := torture.Work(context.Background(), os.Stdin, os.Stdout, open); err != nil {
		os.Exit(1)
	}
}

func onTable(endpoint, table string) torture.Opener {
	return func(now func() time.Time, frugal bool) (store.Store, error) {
		cfg := dynamodb.Config{
			Client: dynamotest.Dial(endpoint), Table: table, Now: now, CallTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second,
		}
		if cfg.Prefetch.Share = 0.1; !frugal {
			cfg.Prefetch.Share, cfg.RejectionTTL, cfg.Guard, cfg.MaxShards = 0, -1, -1, 1
		}
		return dynamodb.New(cfg)
	}
}

func onRedis(address string) torture.Opener {
	return func(func() time.Time, bool) (store.Store, error) {
		return redis.Open(context.Background(), redis.Config{Address: address, CallTimeout: 20 * time.Second})
	}
}

func again(env ...string) func(context.Context) (*exec.Cmd, error) {
	return func(ctx context.Context) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), env...)
		cmd.Stderr = os.Stderr
		return cmd, nil
	}
}

// Processes that are killed while their clocks differ and their calls are lost break nothing.
func TestProcesses(t *testing.T) {
	t.Parallel()
	t.Run("dynamodb", func(t *testing.T) {
		t.Parallel()
		endpoint, table := dynamotest.Engine(t), dynamotest.Table(t)
		if _, err := dynamodb.Create(t.Context(), dynamotest.Client(t, endpoint), table, dynamodb.CreateConfig{}); err != nil {
			t.Fatal(err)
		}
		cfg := config(t, sound)
		cfg.Open, cfg.Spawn = onTable(endpoint, table), again(endpointEnv+"="+endpoint, tableEnv+"="+table)
		cfg.Traits = torture.Traits{
			Shared: true, OwnClock: true, Frugal: true, InFlight: 300 * time.Millisecond, Back: 2 * time.Second,
		}
		cfg.Rounds = 6
		processes(t, cfg)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		address := "redis://" + redistest.Start(t).Addr
		cfg := config(t, sound)
		cfg.Open, cfg.Spawn = onRedis(address), again(redisEnv+"="+address)
		cfg.Traits = torture.Traits{Shared: true, Atomic: true, InFlight: 100 * time.Millisecond, Back: time.Second}
		cfg.Rounds = 4
		processes(t, cfg)
	})
}

// A cluster whose replicas take over again and again, each time after they have everything, breaks nothing.
func TestFailover(t *testing.T) {
	t.Parallel()
	shards := redistest.Cluster(t, 1)
	address := "redis+cluster://" + redistest.Addresses(shards)
	ctx, stop := context.WithCancel(t.Context())
	var failovers int
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			for _, s := range shards[i%len(shards)] {
				if s.Replica(ctx) {
					if out, err := s.Do(ctx, "CLUSTER", "FAILOVER"); err == nil && out == "OK" {
						failovers++
					}
					break
				}
			}
			time.Sleep(1500 * time.Millisecond) // real time: the others vote for a shard only every four seconds
		}
	})
	defer wg.Wait()
	defer stop()
	cfg := config(t, sound)
	cfg.Open, cfg.Spawn = onRedis(address), again(redisEnv+"="+address)
	cfg.Traits = torture.Traits{Shared: true, Atomic: true, InFlight: 500 * time.Millisecond, Back: time.Second}
	cfg.Rounds, cfg.Calls = 8, 80
	processes(t, cfg)
	stop()
	wg.Wait()
	t.Logf("%d failovers", failovers)
	if failovers < 3 {
		t.Errorf("%d failovers, want one of each primary", failovers)
	}
}

func processes(t *testing.T, cfg torture.Config) {
	t.Helper()
	cfg.Processes, cfg.Calls = 2, cmp.Or(cfg.Calls, 25)
	rep, err := torture.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK || rep.Killed == 0 || rep.Unknown == 0 || rep.Admitted == 0 || rep.Refused == 0 || cfg.Traits.Frugal && rep.Frugal == 0 {
		t.Errorf("%+v", rep)
	}
	for _, c := range rep.Checks {
		if c.Cases == 0 {
			t.Errorf("%s was never looked at", c.Name)
		}
	}
	t.Logf("%+v", *rep)
}
