// Package mototest provides tests with a moto server, which stands in for AWS: CloudFormation, S3, SNS, SQS, IAM,
// AppConfig.
package mototest

import (
	"context"
	_ "embed" // serve.py
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/weirlimits/weir/internal/testkit/porttest"
)

// Region is the region that tests use.
const Region = "us-east-1"

// ErrNone reports that no server is installed.
var ErrNone = errors.New(
	"no moto_server: make test-all installs it where Python is; WEIR_TEST_MOTO=URL names one that runs",
)

// Config returns the configuration for clients of the server. The tests of this process share the server, so each must
// use its own resource names; the server ends with the process. If none is installed, the test is skipped, or fails in
// CI.
func Config(t testing.TB) aws.Config {
	t.Helper()
	url, err := shared()
	switch {
	case errors.Is(err, ErrNone) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return aws.Config{
		Region: Region, BaseEndpoint: aws.String(url),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

// Tool returns a program of the server's Python environment, such as cfn-lint. If it is missing, the test is skipped,
// or fails in CI.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := find(name)
	switch {
	case err != nil && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return path
}

var shared = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("WEIR_TEST_MOTO"); url != "" {
		return url, nil
	}
	path, err := find("python3")
	if err != nil {
		return "", err
	}
	return start(path)
})

// supervise runs a command until its standard input is closed, which also happens if this process dies.
const supervise = `"$@" </dev/null >/dev/null 2>&1 & server=$!
cat >/dev/null
kill "$server"`

//go:embed serve.py
var serve string

// lifelines hold the servers' standard inputs open while this process lives: garbage collection would close them.
var lifelines []io.Closer

func start(path string) (string, error) {
	port, err := porttest.Reserve()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(
		context.Background(), "sh", "-c", supervise, "sh", path, "-c", serve, "-H", "127.0.0.1", "-p", port,
	)
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	lifelines = append(lifelines, lifeline)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	url := "http://127.0.0.1:" + port
	client := http.Client{Timeout: time.Minute}
	for deadline := time.Now().Add(time.Minute); ; {
		req, err := http.NewRequestWithContext(
			context.Background(), http.MethodGet, url+"/moto-api/data.json", http.NoBody,
		)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err == nil {
			return url, resp.Body.Close()
		} else if time.Now().After(deadline) {
			return "", fmt.Errorf("start %s: %w", path, err)
		}
		time.Sleep(20 * time.Millisecond) // real time, because another process is starting
	}
}

// find returns a program of .bin/py, in this directory or a parent.
func find(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, ".bin", "py", "bin", name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("%w (%s)", ErrNone, name)
		}
		dir = up
	}
}
