package redis_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store/redis"
)

// server is a redis-server process.
type server struct{ *redistest.Server }

func start(t testing.TB, args ...string) server {
	t.Helper()
	return server{redistest.Start(t, args...)}
}

// do sends one command and returns its answer as text.
func (s server) do(t testing.TB, words ...string) string {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).ToMessage()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	if n, err := m.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	text, err := m.ToString()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return text
}

// eventually waits until f is true. It uses real time because it asks other processes.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond) // real time: as above
	}
	t.Fatalf("not within a minute: %s", what)
}

var (
	sharedOnce sync.Once
	sharedOne  *redistest.Server
	errShared  error
	prefixes   atomic.Int64
)

// shared returns the server shared by all tests that do not harm it.
func shared(t testing.TB) server {
	t.Helper()
	path := redistest.Binary(t)
	sharedOnce.Do(func() { sharedOne, errShared = redistest.Launch(path) })
	if errShared != nil {
		t.Fatal(errShared)
	}
	return server{sharedOne}
}

func TestMain(m *testing.M) {
	if address := os.Getenv(holderOf); address != "" {
		fmt.Fprintln(os.Stderr, runHolder(address, os.Stdin, os.Stdout))
		os.Exit(1)
	}
	code := m.Run()
	if sharedOne != nil {
		sharedOne.Stop()
	}
	os.Exit(code)
}

// prefix returns a prefix that no other test uses.
func prefix() string { return fmt.Sprint("t", prefixes.Add(1)) }

func open(t testing.TB, cfg redis.Config) *redis.Store {
	t.Helper()
	s, err := redis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
