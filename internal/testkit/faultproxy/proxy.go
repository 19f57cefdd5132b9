// Package faultproxy is a proxy between clients of DynamoDB and an engine that injects faults, for tests.
package faultproxy

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	// Delay holds a request back for the rule's Delay. Other rules then apply to it as well.
	Delay Kind = "delay"
	// DropBefore breaks the connection before the engine sees the request.
	DropBefore Kind = "drop before"
	// DropAfter breaks the connection after the engine has executed the request.
	DropAfter Kind = "drop after"
	// InternalError responds with status 500 instead of the engine.
	InternalError Kind = "internal error"
	// Throttling responds with a ThrottlingException of a key instead of the engine.
	Throttling Kind = "throttling"
	// Throughput responds with a ProvisionedThroughputExceededException of a key instead of the engine.
	Throughput Kind = "throughput exceeded"
	// Unprocessed withholds some keys of a BatchGetItem from the engine, at most all but one, and returns them as
	// unprocessed. Other operations, and batches of one, pass.
	Unprocessed Kind = "unprocessed"
	// Conflict responds with a TransactionCanceledException because of one item to TransactWriteItems, and with a
	// TransactionConflictException to a single write. Other operations pass.
	Conflict Kind = "conflict"
)

// Rule is a fault to inject.
type Rule struct {
	// Operation is the name of the operation it applies to. The default is all.
	Operation string
	// Probability is the probability of the fault, from 0 to 1.
	Probability float64
	Kind        Kind
	// Delay is how long a request is held back. It ends early if the client disconnects.
	Delay time.Duration
}

// Config configures a [Proxy].
type Config struct {
	// Seed decides which requests are hit. Sequential requests are hit the same way each time.
	Seed uint64
	// Rules are tried in order. The first that hits decides; delays add to it.
	Rules []Rule
}

// Proxy is a reverse proxy. It is safe for concurrent use.
type Proxy struct {
	// URL is the endpoint for clients.
	URL string

	target string
	client *http.Client

	mu     sync.Mutex
	rng    *rand.Rand
	rules  []Rule
	counts map[Kind]int
}

// New starts a proxy for the engine at target. It ends with the test.
func New(t testing.TB, target string, cfg Config) *Proxy {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}
	p := &Proxy{
		target: target, client: &http.Client{Transport: transport}, rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
		rules: cfg.Rules, counts: make(map[Kind]int),
	}
	server := httptest.NewServer(p)
	p.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// Set replaces the rules for new requests.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = rules
}

// Counts returns how often each kind of fault was injected.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// request is a request in progress.
type request struct {
	op   string
	body []byte
	// merge completes the engine's response, if not nil.
	merge func(answer []byte) ([]byte, error)
}

// ServeHTTP serves one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	req := &request{op: op, body: body}
	rule, wait := p.decide(req)
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	switch rule.Kind {
	case DropBefore:
		drop()
		return
	case InternalError, Throttling, Throughput, Conflict:
		status, body := refusal(rule.Kind, req)
		answer(w, status, http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, body)
		return
	default:
	}
	status, header, body, err := p.forward(r, req)
	switch {
	case err != nil || rule.Kind == DropAfter:
		drop()
	default:
		answer(w, status, header, body)
	}
}

// decide returns the rule that hits a request, if any, and how long the request waits first.
func (p *Proxy) decide(req *request) (hit Rule, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, rule := range p.rules {
		if rule.Operation != "" && rule.Operation != req.op || p.rng.Float64() >= rule.Probability {
			continue
		}
		switch rule.Kind {
		case Delay:
			wait += rule.Delay
			p.counts[Delay]++
			continue
		case Unprocessed:
			if !req.withhold(p.rng) {
				continue
			}
		case Conflict:
			if !req.conflicts(p.rng) {
				continue
			}
		default:
		}
		p.counts[rule.Kind]++
		return rule, wait
	}
	return Rule{}, wait
}

// forward passes a request to the engine, which executes it even if the client is gone.
func (p *Proxy) forward(r *http.Request, req *request) (status int, header http.Header, answer []byte, err error) {
	onward, err := http.NewRequestWithContext(
		context.WithoutCancel(r.Context()), r.Method, p.target+r.URL.Path, bytes.NewReader(req.body),
	)
	if err != nil {
		return 0, nil, nil, err
	}
	onward.Header = r.Header.Clone()
	onward.Header.Del("Accept-Encoding")
	resp, err := p.client.Do(onward)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err == nil && req.merge != nil && resp.StatusCode == http.StatusOK {
		answer, err = req.merge(answer)
	}
	return resp.StatusCode, resp.Header, answer, err
}

// answer sends a response with a matching checksum.
func answer(w http.ResponseWriter, status int, header http.Header, body []byte) {
	maps.Copy(w.Header(), header)
	w.Header().Del("Content-Length")
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means the client is gone
}

// drop breaks the client's connection.
func drop() { panic(http.ErrAbortHandler) }
