// Command demo drives a weir server over HTTP, for scripts/demo.sh, and prints the results.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: demo http://HOST:PORT")
		os.Exit(2)
	}
	d := &demo{base: os.Args[1], out: os.Stdout, client: &http.Client{Timeout: 10 * time.Second}}
	if err := d.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	base   string
	out    io.Writer
	client *http.Client
}

// answer is the part of the server's responses that the demo reads.
type answer struct {
	status     int
	retryAfter string
	Lease      string   `json:"lease"`
	Detail     string   `json:"detail"`
	Limits     []status `json:"limits"`
}

type status struct {
	Entity    string `json:"entity"`
	Limit     string `json:"limit"`
	Available int64  `json:"available"`
	Burst     int64  `json:"burst"`
}

const (
	resource = "gpt-4"
	estimate = 400 // estimated tokens of a request
	actual   = 700 // actual tokens of one of them
)

func (d *demo) run(ctx context.Context) error {
	leases, err := d.burst(ctx, "key-alice", 25)
	if err != nil {
		return err
	}
	if len(leases) < 2 {
		return fmt.Errorf("only %d requests were admitted: the demo needs at least 2", len(leases))
	}
	if _, err := d.burst(ctx, "key-bob", 5); err != nil {
		return err
	}
	if err := d.adjust(ctx, leases[0]); err != nil {
		return err
	}
	return d.rollback(ctx, leases[1])
}

// burst sends n requests at once and returns the leases of those that were admitted.
func (d *demo) burst(ctx context.Context, entity string, n int) (leases []string, err error) {
	d.title("%d requests of %s at once, rpm=1 tpm=%d each", n, entity, estimate)
	answers, errs := make([]answer, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			body := map[string]any{
				"entity": entity, "resource": resource, "tokens": map[string]int{"rpm": 1, "tpm": estimate},
			}
			answers[i], errs[i] = d.send(ctx, http.MethodPost, "/v1/acquire", body)
		})
	}
	wg.Wait()
	var refusal *answer
	for i := range answers {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case answers[i].status == http.StatusOK:
			leases = append(leases, answers[i].Lease)
		case answers[i].status == http.StatusTooManyRequests:
			refusal = &answers[i]
		default:
			return nil, fmt.Errorf("acquire: status %d: %s", answers[i].status, answers[i].Detail)
		}
	}
	d.say("admitted", "%d", len(leases))
	d.say("refused", "%d", n-len(leases))
	if refusal != nil {
		d.say("", "429, Retry-After: %s", refusal.retryAfter)
		d.say("", "%s", refusal.Detail)
	}
	return leases, nil
}

func (d *demo) adjust(ctx context.Context, lease string) error {
	d.title("one request used %d tokens, not %d: adjust it", actual, estimate)
	if err := d.show(ctx, "before"); err != nil {
		return err
	}
	a, err := d.settle(
		ctx, lease, "adjust", map[string]any{"tokens": map[string]int{"tpm": actual - estimate}}, http.StatusOK,
	)
	if err != nil {
		return err
	}
	d.say("adjusted", "tpm %+d", actual-estimate)
	if err := d.show(ctx, "after"); err != nil {
		return err
	}
	if _, err := d.settle(ctx, a.Lease, "commit", nil, http.StatusNoContent); err != nil {
		return err
	}
	d.say("committed", "")
	return nil
}

func (d *demo) rollback(ctx context.Context, lease string) error {
	d.title("another request failed: roll it back")
	if _, err := d.settle(ctx, lease, "rollback", nil, http.StatusNoContent); err != nil {
		return err
	}
	d.say("rolled back", "rpm 1, tpm %d", estimate)
	if err := d.show(ctx, "after"); err != nil {
		return err
	}
	again, err := d.settle(ctx, lease, "rollback", nil, http.StatusConflict)
	if err != nil {
		return err
	}
	d.say("sent twice", "409, %s", again.Detail)
	return nil
}

// settle adjusts, commits or rolls back a lease and expects the status want.
func (d *demo) settle(ctx context.Context, lease, verb string, body any, want int) (answer, error) {
	a, err := d.send(ctx, http.MethodPost, "/v1/leases/"+url.PathEscape(lease)+"/"+verb, body)
	if err == nil && a.status != want {
		err = fmt.Errorf("%s: status %d, want %d: %s", verb, a.status, want, a.Detail)
	}
	return a, err
}

// show prints what key-alice and its parent can spend.
func (d *demo) show(ctx context.Context, when string) error {
	a, err := d.send(ctx, http.MethodGet, "/v1/available?entity=key-alice&resource="+resource, nil)
	if err != nil {
		return err
	}
	var parts []string
	for _, s := range a.Limits {
		parts = append(parts, fmt.Sprintf("%s %s %d of %d", s.Entity, s.Limit, s.Available, s.Burst))
	}
	d.say(when, "%s", strings.Join(parts, ", "))
	return nil
}

func (d *demo) send(ctx context.Context, method, path string, body any) (a answer, err error) {
	var payload io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return a, err
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, d.base+path, payload)
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	a.status, a.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	text, err := io.ReadAll(resp.Body)
	if err != nil || len(text) == 0 {
		return a, err
	}
	return a, json.Unmarshal(text, &a)
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.out, "\n# "+format+"\n", args...)
}

func (d *demo) say(what, format string, args ...any) {
	line := fmt.Sprintf("  %-12s "+format, append([]any{what}, args...)...)
	fmt.Fprintln(d.out, strings.TrimRight(line, " "))
}
