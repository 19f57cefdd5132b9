package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// served is a running weir serve.
type served struct {
	cmd        *exec.Cmd
	http, grpc string
}

func start(ctx context.Context, binary, store string) (*served, error) {
	// The ids of settled leases are kept until the leases would have expired. With a short expiry, their number peaks
	// early.
	cmd := exec.CommandContext(ctx, binary, "serve", "--lease-ttl", "30s", "--store", store, "--output", "json",
		"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--decide-within", "1s")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w: make build makes it", err)
	}
	var at struct{ HTTP, GRPC string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&at); err != nil {
		return nil, fmt.Errorf("read where it serves: %w", err)
	}
	return &served{cmd, at.HTTP, at.GRPC}, nil
}

func (s *served) stop() error {
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// perSecond is the limit, and the burst, of requests.
const perSecond = 500

var limits = fmt.Sprintf(`{"limits":["rps:%d/s","tpm:100M/min"]}`, perSecond)

// limit gives every entity limits that the few most used entities of the Zipf distribution run into.
func (s *served) limit(ctx context.Context) error {
	req, err := http.NewRequestWithContext(
		ctx, http.MethodPut, s.http+"/v1/limits", strings.NewReader(limits),
	)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	_, err = answer(req)
	return err
}

// sample is what a server's metrics show, and the latency of its answers.
type sample struct {
	resident, heap, goroutines float64
	p99                        time.Duration
}

func (s *served) sample(ctx context.Context) (sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.http+"/metrics", http.NoBody)
	if err != nil {
		return sample{}, err
	}
	text, err := answer(req)
	if err != nil {
		return sample{}, err
	}
	var out sample
	for name, to := range map[string]*float64{
		"process_resident_memory_bytes": &out.resident, "go_memstats_heap_alloc_bytes": &out.heap,
		"go_goroutines": &out.goroutines,
	} {
		_, rest, found := strings.Cut(text, "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		if *to, err = strconv.ParseFloat(value, 64); !found || err != nil {
			return sample{}, fmt.Errorf("metrics: no %s", name)
		}
	}
	return out, nil
}

var client = http.Client{Timeout: time.Minute}

func answer(req *http.Request) (string, error) {
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, res.Status, text)
	}
	return string(text), err
}
