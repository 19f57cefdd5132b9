package torture_test

import (
	"context"
	"os"
	"os/exec"
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
	return func(now func() time.Time) (store.Store, error) {
		return dynamodb.New(dynamodb.Config{Client: dynamotest.Dial(endpoint), Table: table, Now: now, RejectionTTL: -1, Guard: -1, MaxShards: 1, CallTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second})
	}
}

func onRedis(address string) torture.Opener {
	return func(func() time.Time) (store.Store, error) {
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
		cfg.Traits = torture.Traits{Shared: true, OwnClock: true, InFlight: 300 * time.Millisecond, Back: 2 * time.Second}
		processes(t, cfg)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		address := "redis://" + redistest.Start(t).Addr
		cfg := config(t, sound)
		cfg.Open, cfg.Spawn = onRedis(address), again(redisEnv+"="+address)
		cfg.Traits = torture.Traits{Shared: true, Atomic: true, InFlight: 100 * time.Millisecond, Back: time.Second}
		processes(t, cfg)
	})
}

func processes(t *testing.T, cfg torture.Config) {
	t.Helper()
	cfg.Processes, cfg.Rounds, cfg.Calls = 2, 4, 25
	rep, err := torture.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK || rep.Killed == 0 || rep.Unknown == 0 || rep.Admitted == 0 || rep.Refused == 0 {
		t.Errorf("%+v", rep)
	}
	for _, c := range rep.Checks {
		if c.Cases == 0 {
			t.Errorf("%s was never looked at", c.Name)
		}
	}
	t.Logf("%+v", *rep)
}
