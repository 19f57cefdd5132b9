package dynamotest

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// Engine returns the endpoint of an engine that the tests of this process share: the one named by WEIR_TEST_DYNAMODB,
// or one that is started at the first call and ends with the process, keeping no data. If there is no engine, the
// test is skipped, or fails in CI.
func Engine(t testing.TB) string {
	t.Helper()
	url, err := Endpoint()
	require(t, err)
	return url
}

// FreshEngine is [Engine] with a process of its own that ends with the test, for tests that load it. An engine named
// by WEIR_TEST_DYNAMODB is shared all the same.
func FreshEngine(t testing.TB) string {
	t.Helper()
	if url := os.Getenv("WEIR_TEST_DYNAMODB"); url != "" {
		return url
	}
	e, err := start()
	require(t, err)
	t.Cleanup(e.stop)
	return e.url
}

// Endpoint is [Engine] for code that is not a test. The error is [ErrNoEngine] if there is none.
func Endpoint() (string, error) {
	if url := os.Getenv("WEIR_TEST_DYNAMODB"); url != "" {
		return url, nil
	}
	e, err := shared()
	if err != nil {
		return "", err
	}
	return e.url, nil
}

// ErrNoEngine reports that no engine is installed.
var ErrNoEngine = errors.New(
	"no engine: make test-all installs it where npm and a Linux on x64 are; WEIR_TEST_DYNAMODB=URL names any other",
)

func require(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, ErrNoEngine) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

var shared = sync.OnceValues(start)

// engine is a process of the engine, under a shell.
type engine struct {
	url    string
	shell  *exec.Cmd
	life   *os.File // closing it, or our death, ends the engine
	output *os.File
}

// supervise runs a command until descriptor 3 reaches its end. A parent-death signal would depend on the thread that
// started the command, and exists only on Linux.
const supervise = `"$@" </dev/null 3<&- & engine=$!
(cat <&3; kill "$engine") >/dev/null 2>&1 & watch=$!
exec 3<&-
wait "$engine"; status=$?
kill "$watch" 2>/dev/null
exit "$status"`

func start() (*engine, error) {
	binary, err := find()
	if err != nil {
		return nil, err
	}
	port, err := porttest.Reserve()
	if err != nil {
		return nil, err
	}
	life, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer life.Close()
	output, theirs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer theirs.Close()
	shell := exec.CommandContext(context.Background(), "sh", "-c", supervise, "sh", binary, "serve", "--port", port)
	shell.Stdout, shell.Stderr = theirs, theirs
	shell.ExtraFiles = []*os.File{life}
	shell.Env = []string{}
	if err := shell.Start(); err != nil {
		return nil, errors.Join(err, ours.Close(), output.Close())
	}
	e := &engine{"http://127.0.0.1:" + port, shell, ours, output}
	if err := e.ready(); err != nil {
		e.stop()
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return e, nil
}

// ready waits until the engine reports that it is listening.
func (e *engine) ready() error {
	if err := e.output.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	line, err := bufio.NewReader(e.output).ReadString('\n')
	switch {
	case err != nil:
		return fmt.Errorf("read its first line, have %q: %w", line, err)
	case !strings.Contains(line, "listening"):
		return errors.New(strings.TrimSpace(line))
	}
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(e.url, "http://"))
		if err == nil {
			return conn.Close()
		} else if time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond) // real time, because another process is starting
	}
}

func (e *engine) stop() {
	// The engine ends by a signal, and so with an error.
	_, _, _ = e.life.Close(), e.shell.Wait(), e.output.Close()
}

// find returns the engine installed in e2e, in this directory or a parent.
func find() (string, error) {
	platform := cmp.Or(map[string]string{"amd64": "x64"}[runtime.GOARCH], runtime.GOARCH)
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		binary := filepath.Join(dir, "e2e", "node_modules", "@dynoxide", runtime.GOOS+"-"+platform, "dynoxide")
		if _, err := os.Stat(binary); err == nil {
			return binary, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", ErrNoEngine
		}
		dir = up
	}
}
