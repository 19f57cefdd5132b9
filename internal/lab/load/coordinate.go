package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// Fleet is a set of workers that perform a run together.
type Fleet struct {
	Addresses []string // HOST:PORT
	Token     string
	// Measures returns totals of a store that all workers share, if the coordinator can read them; otherwise the
	// workers' own counts are used.
	Measures func() map[string]float64
}

// lead is how far in advance the workers receive the time to begin.
const lead = time.Second

// Run makes each worker do its part, all starting at the same time, to within half a round trip, and merges their
// counts. If one fails, the others are stopped. If ctx ends, Run merges what the workers have reported so far.
func (f *Fleet) Run(
	ctx context.Context, p *traffic.Plan, sc *traffic.Scenario, set traffic.Settings, namespace string,
	progress func(*Tally),
) (*Tally, error) {
	caller := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := secret.Client(0, &http.Transport{DisableCompression: true})
	defer client.CloseIdleConnections()
	away := make([]time.Duration, len(f.Addresses)) // half a round trip
	for i, addr := range f.Addresses {
		for range 3 { // the first request connects
			began := time.Now()
			if err := f.ready(ctx, client, addr); err != nil {
				return nil, err
			}
			away[i] = time.Since(began) / 2
		}
	}
	before := measured(f.Measures)
	begin := time.Now().Add(time.Duration(p.Scenario.WarmUp) + lead)
	g := &gathering{p: p, parts: make([]*Tally, len(f.Addresses)), progress: progress}
	errs := make([]error, len(f.Addresses))
	var wg sync.WaitGroup
	for i, addr := range f.Addresses {
		wg.Go(func() {
			j := job{
				Scenario: sc.Name, Text: string(sc.Text()), Settings: set, Namespace: namespace,
				Part: i, Parts: len(f.Addresses), In: traffic.Span(time.Until(begin) - away[i]),
			}
			if err := f.run(ctx, client, addr, &j, func(t *Tally) error { return g.put(i, t) }); err != nil {
				errs[i] = fmt.Errorf("worker %s: %w", addr, err)
				cancel()
			}
		})
	}
	wg.Wait()
	if err := first(errs); err != nil && caller.Err() == nil {
		return nil, err
	}
	t := g.merged()
	if f.Measures != nil {
		clear(t.Measures)
		for name, n := range measured(f.Measures) {
			t.Measures[name] = n - before[name]
		}
	}
	return t, nil
}

// first returns the first error that is not merely a cancellation caused by another.
func first(errs []error) (found error) {
	for _, err := range errs {
		if err != nil && (found == nil || errors.Is(found, context.Canceled)) {
			found = err
		}
	}
	return found
}

// gathering collects what the workers have reported so far.
type gathering struct {
	mu       sync.Mutex
	p        *traffic.Plan
	parts    []*Tally
	progress func(*Tally)
}

// put records a worker's report. Reports of the first worker trigger progress for all.
func (g *gathering) put(i int, t *Tally) error {
	if err := newTally(g.p).check(t); err != nil {
		return err
	}
	g.mu.Lock()
	g.parts[i] = t
	g.mu.Unlock()
	if i > 0 || g.progress == nil {
		return nil
	}
	g.progress(g.merged())
	return nil
}

func (g *gathering) merged() *Tally {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := newTally(g.p)
	for _, part := range g.parts {
		if part != nil {
			t.merge(part)
		}
	}
	return t
}

func (f *Fleet) request(ctx context.Context, method, addr, path string, body []byte) (*http.Request, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	req, err := http.NewRequestWithContext(ctx, method, addr+path, bytes.NewReader(body))
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+f.Token)
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

func (f *Fleet) ready(ctx context.Context, client *http.Client, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := f.request(ctx, http.MethodGet, addr, "/v1/ready", nil)
	if err != nil {
		return fmt.Errorf("worker %s: %w", addr, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("worker %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("worker %s: %w", addr, said(resp))
	}
	return nil
}

// said returns a worker's error response as an error.
func said(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
}

// run makes a worker do a job, and returns when it is done.
func (f *Fleet) run(ctx context.Context, client *http.Client, addr string, j *job, tell func(*Tally) error) error {
	body, err := json.Marshal(j)
	if err != nil {
		return err
	}
	req, err := f.request(ctx, http.MethodPost, addr, "/v1/run", body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return said(resp)
	}
	for dec := json.NewDecoder(resp.Body); ; {
		var m message
		if err := dec.Decode(&m); err != nil {
			return fmt.Errorf("the response broke off: %w", err)
		}
		if m.Error != "" {
			return errors.New(m.Error)
		}
		if m.Tally != nil {
			if err := tell(m.Tally); err != nil {
				return err
			}
		}
		if m.Done {
			return nil
		}
	}
}
