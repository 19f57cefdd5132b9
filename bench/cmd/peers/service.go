package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimits/weir/bench/internal/engine"
	"github.com/weirlimits/weir/bench/internal/harness"
	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// asWeir makes this program run as weir, so that what is measured is the code it was built with.
const asWeir = "WEIR_PEERS_AS_WEIR"

// rules are a limit of a service: each value of a descriptor with the key has amount per unit of time.
type rules struct {
	key    string
	amount int
	unit   string // second, minute, hour or day
	value  string // the only value; "": any
}

// service is a rate limit service for Envoy, in a process of its own.
type service struct {
	pid     int
	clients []rlsv3.RateLimitServiceClient
}

// allowed requests one hit of each descriptor in one call.
func (s *service) allowed(ctx context.Context, worker int, entries ...[2]string) (bool, error) {
	req := &rlsv3.RateLimitRequest{Domain: "bench"}
	for _, e := range entries {
		req.Descriptors = append(req.Descriptors, &ratelimitv3.RateLimitDescriptor{
			Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: e[0], Value: e[1]}},
		})
	}
	out, err := s.clients[worker%len(s.clients)].ShouldRateLimit(ctx, req)
	return err == nil && out.GetOverallCode() == rlsv3.RateLimitResponse_OK, err
}

func (s *service) ask(ctx context.Context, id string) (bool, error) {
	return s.allowed(ctx, 0, [2]string{"user", id})
}

func dial(e *harness.Env, addr string, pid int) (*service, error) {
	s := &service{pid: pid}
	for range 4 {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		e.Defer(conn.Close)
		s.clients = append(s.clients, rlsv3.NewRateLimitServiceClient(conn))
	}
	return s, nil
}

// run starts a process that ends with the row.
func run(e *harness.Env, cmd *exec.Cmd) error {
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	e.Defer(func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		return nil
	})
	return nil
}

func weirService(e *harness.Env, store string, limits ...rules) (*service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(e.Ctx, self, "serve", "--store", store, "--output", "json",
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--decide-within", "1s", "--log-level", "error")
	cmd.Env = append(os.Environ(), asWeir+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := run(e, cmd); err != nil {
		return nil, err
	}
	var at struct{ HTTP, GRPC string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&at); err != nil {
		return nil, fmt.Errorf("read where weir serves: %w", err)
	}
	for _, l := range limits {
		body := fmt.Sprintf(`{"limits":["requests:%d/%s"]}`, l.amount, l.unit)
		to := at.HTTP + "/v1/limits?resource=bench"
		if l.value != "" {
			to += "&entity=" + l.value
		}
		req, err := http.NewRequestWithContext(e.Ctx, http.MethodPut, to, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := (&http.Client{Timeout: time.Minute}).Do(req)
		if err != nil {
			return nil, err
		}
		said, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil && res.StatusCode >= 300 {
			err = fmt.Errorf("set %s: %s: %s", body, res.Status, said)
		}
		if err != nil {
			return nil, err
		}
	}
	return dial(e, at.GRPC, cmd.Process.Pid)
}

// envoyService starts envoyproxy/ratelimit on a Redis with its defaults, but without statistics, which it would write
// to its log. more is added to its environment.
func envoyService(e *harness.Env, redis string, more []string, limits ...rules) (*service, error) {
	if e.Peers.Envoy == "" {
		return nil, fmt.Errorf("envoyproxy/ratelimit: %w: make bench-peers builds it", harness.ErrAbsent)
	}
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return nil, err
	}
	e.Defer(func() error { return os.RemoveAll(dir) })
	var text strings.Builder
	text.WriteString("domain: bench\ndescriptors:\n")
	for _, l := range limits {
		fmt.Fprintf(&text, "  - key: %s\n    rate_limit: {unit: %s, requests_per_unit: %d}\n", l.key, l.unit, l.amount)
	}
	if err := os.MkdirAll(filepath.Join(dir, "ratelimit", "config"), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(
		filepath.Join(dir, "ratelimit", "config", "bench.yaml"), []byte(text.String()), 0o600,
	); err != nil {
		return nil, err
	}
	var ports [3]string
	for i := range ports {
		if ports[i], err = porttest.Reserve(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(e.Ctx, e.Peers.Envoy)
	cmd.Env = append([]string{
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false",
		"DISABLE_STATS=true", "LOG_LEVEL=error",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"PORT=" + ports[0], "GRPC_PORT=" + ports[1], "DEBUG_PORT=" + ports[2],
	}, more...)
	if err := run(e, cmd); err != nil {
		return nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", ports[1])
	s, err := dial(e, addr, cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	for range 500 {
		if _, err = s.ask(e.Ctx, "warm"); err == nil {
			return s, nil
		}
		time.Sleep(20 * time.Millisecond) // real time: a process starts
	}
	return nil, errors.Join(errors.New("envoyproxy/ratelimit does not answer"), err)
}

// serviceRows measure the processor time of the service, without its client and Redis.
func serviceRows() (rows []harness.Row) {
	const callers = 64
	most := rules{"user", 4_000_000_000, "day", ""}
	for _, n := range []int{1, 10_000} {
		users := "1 user"
		if n > 1 {
			users = "10,000 users"
		}
		r := harness.Row{
			Part: partService, Name: fmt.Sprintf("ShouldRateLimit, %d callers on 4 connections, %s", callers, users),
		}
		add := func(name string, start func(e *harness.Env) (*service, error)) {
			r.Add(name, func(e *harness.Env) (harness.Drive, error) {
				s, err := start(e)
				if err != nil {
					return nil, err
				}
				ks := harness.Uniform(min(n, e.Few(n, 100)))
				if err := touch(e, ks, s.ask); err != nil {
					return nil, err
				}
				cpu := func() time.Duration { return harness.CPUOf(s.pid) }
				one := func(ctx context.Context, w int) error {
					ok, err := s.allowed(ctx, w, [2]string{"user", ks.ID(w)})
					if err == nil && !ok {
						err = errors.New("refused")
					}
					return err
				}
				return func(_ int, length time.Duration) (harness.Sample, error) {
					return harness.Meter{CPU: cpu}.Timed(e, callers, length, one), nil
				}, nil
			})
		}
		redis := func(start func(*harness.Env, string) (*service, error)) func(*harness.Env) (*service, error) {
			return func(e *harness.Env) (*service, error) {
				addr, err := engine.Redis(e)
				if err != nil {
					return nil, err
				}
				return start(e, addr)
			}
		}
		add("weir on Redis", redis(func(e *harness.Env, addr string) (*service, error) {
			return weirService(e, "redis://"+addr, most)
		}))
		add("envoyproxy/ratelimit on Redis", redis(func(e *harness.Env, addr string) (*service, error) {
			return envoyService(e, addr, nil, most)
		}))
		add("weir in memory", func(e *harness.Env) (*service, error) { return weirService(e, "memory:", most) })
		rows = append(rows, r)
	}
	return rows
}
