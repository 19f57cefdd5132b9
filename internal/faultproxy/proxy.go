// Package faultproxy stands between clients of DynamoDB and an engine, and breaks what passes: for tests.
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

// Kind is what is done to a request.
type Kind string

// The kinds of faults.
const (
	// Delay holds a request back for the rule's Delay. It then takes what other rules do to it.
	Delay Kind = "delay"
	// DropBefore breaks the connection before the engine sees the request.
	DropBefore Kind = "drop before"
	// DropAfter breaks the connection after the engine has carried the request out.
	DropAfter Kind = "drop after"
	// InternalError is status 500 instead of the engine.
	InternalError Kind = "internal error"
	// Throttling is a ThrottlingException with the rule's Reason instead of the engine.
	Throttling Kind = "throttling"
	// Throughput is a ProvisionedThroughputExceededException with the rule's Reason instead of the engine.
	Throughput Kind = "throughput exceeded"
	// Unprocessed keeps some keys of a BatchGetItem or some writes of a BatchWriteItem from the engine, at most all
	// but one, and returns them as unprocessed. Other operations, and batches of one, pass.
	Unprocessed Kind = "unprocessed"
	// Conflict is a TransactionCanceledException because of one item for TransactWriteItems, and a
	// TransactionConflictException for a single write. Others pass.
	Conflict Kind = "conflict"
)

// Rule says what happens to requests.
type Rule struct {
	// Operation is the name of the one that it is about. Defaults to all.
	Operation string
	// Probability is that of the fault, from 0 to 1.
	Probability float64
	Kind        Kind
	// Delay is for how long a request is held back. It ends early when the client goes away.
	Delay time.Duration
	// Reason is that of a throttle. Defaults to TableWriteKeyRangeThroughputExceeded.
	Reason string
}

// Config configures a [Proxy].
type Config struct {
	// Seed decides which requests are hit. What comes one after another is hit in the same way each time.
	Seed uint64
	// Rules are asked in this order; the first that hits decides, delays apart.
	Rules []Rule
	// Skew is added to the date of each answer.
	Skew time.Duration
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
	skew   time.Duration
	counts map[Kind]int
}

// New starts a proxy for the engine at target. It ends with the test.
func New(t testing.TB, target string, cfg Config) *Proxy {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true}
	p := &Proxy{
		target: target, client: &http.Client{Transport: transport}, rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
		rules: cfg.Rules, skew: cfg.Skew, counts: make(map[Kind]int),
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

// Set replaces the rules, for requests that come from now on.
func (p *Proxy) Set(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = rules
}

// SetSkew replaces what is added to the date of each answer.
func (p *Proxy) SetSkew(skew time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skew = skew
}

// Counts returns how often each kind of fault was injected.
func (p *Proxy) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// request is one under way.
type request struct {
	op   string
	body []byte
	// merge completes the engine's answer, if not nil.
	merge func(answer []byte) ([]byte, error)
}

// ServeHTTP serves one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
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
		status, answer := refusal(rule, req)
		header := make(http.Header)
		header.Set("Content-Type", "application/x-amz-json-1.0")
		p.answer(w, status, header, answer)
		return
	default:
	}
	status, header, answer, err := p.forward(r, req)
	switch {
	case err != nil || rule.Kind == DropAfter:
		drop()
	default:
		p.answer(w, status, header, answer)
	}
}

// decide returns the rule that hits a request, if any, and for how long it waits first.
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

// forward passes a request to the engine, which carries it out even if the client has gone.
func (p *Proxy) forward(r *http.Request, req *request) (status int, header http.Header, answer []byte, err error) {
	onward, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.target+r.URL.Path, bytes.NewReader(req.body))
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

// answer sends an answer with a checksum and a date that fit.
func (p *Proxy) answer(w http.ResponseWriter, status int, header http.Header, body []byte) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		date = time.Now()
	}
	p.mu.Lock()
	date = date.Add(p.skew)
	p.mu.Unlock()
	maps.Copy(w.Header(), header)
	w.Header().Del("Content-Length")
	w.Header().Set("Date", date.UTC().Format(http.TimeFormat))
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // else the client has gone
}

// drop breaks the client's connection.
func drop() { panic(http.ErrAbortHandler) }
