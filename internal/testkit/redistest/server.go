// Package redistest runs Redis servers for tests.
package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// Server is a server process.
type Server struct {
	Addr   string // host and port
	Socket string
	cmd    *exec.Cmd
	dir    string
	output bytes.Buffer
}

// ErrNone reports that no server is installed.
var ErrNone = errors.New("no redis-server: install it (Debian: redis-server), or name one by WEIR_TEST_REDIS_SERVER")

// Binary returns the server program that tests run: WEIR_TEST_REDIS_SERVER, or redis-server or valkey-server. If
// there is none, the test is skipped, or fails if CI is true.
func Binary(t testing.TB) string {
	t.Helper()
	for _, name := range []string{os.Getenv("WEIR_TEST_REDIS_SERVER"), "redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(ErrNone)
	}
	t.Skip(ErrNone)
	return ""
}

// Start runs an empty server until the test ends. It would save a snapshot only after an hour.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Launch(Binary(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Launch is [Start] for servers that outlive a test. With the argument --sentinel it runs a sentinel.
func Launch(path string, args ...string) (*Server, error) {
	port, err := porttest.Reserve()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", port), Socket: filepath.Join(dir, "s"), dir: dir}
	words := append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "3600 1", "--appendonly", "no", "--dir", dir,
		"--unixsocket", s.Socket, "--repl-diskless-sync-delay", "0",
	}, args...)
	if slices.Contains(args, "--sentinel") {
		file := filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(
			file, fmt.Appendf(nil, "port %s\nbind 127.0.0.1\ndir %s\n", port, dir), 0o600,
		); err != nil {
			return nil, err
		}
		words = []string{file, "--sentinel"}
	}
	s.cmd = exec.CommandContext(context.Background(), path, words...)
	if err := s.run(); err != nil {
		return nil, err
	}
	return s, nil
}

// Restart runs the server, which was killed, again at its address.
func (s *Server) Restart() error {
	s.cmd = exec.CommandContext(context.Background(), s.cmd.Path, s.cmd.Args[1:]...)
	return s.run()
}

func (s *Server) run() error {
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < time.Minute; {
		if conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.Addr); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond) // real time, because a process is starting
	}
	s.Stop()
	return fmt.Errorf("redis-server does not start: %s", s.output.String())
}

// Signal sends the process a signal.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends the process at once. Stop may still be called.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Stop ends the process and removes its files.
func (s *Server) Stop() {
	s.Kill()
	_ = os.RemoveAll(s.dir)
}
