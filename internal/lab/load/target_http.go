package load

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/lab/traffic"
)

// HTTP calls weir serve over HTTP. It keeps as many connections as there are concurrent calls.
type HTTP struct {
	base, namespace, token string
	client                 *http.Client
}

// NewHTTP creates a target for the URL of a server. The token may be "", and conf nil for the default. Close it when
// done.
func NewHTTP(base, token string, conf *tls.Config) (*HTTP, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the URL of a server, such as http://127.0.0.1:8080",
			secret.Address(base))
	}
	return &HTTP{
		base: strings.TrimSuffix(base, "/"), token: token,
		client: secret.Client(timeout, &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: traffic.MaxUsers, DisableCompression: true,
			TLSClientConfig: conf, ForceAttemptHTTP2: true,
		}),
	}, nil
}

// In returns the target for another namespace, over the same connections.
func (t *HTTP) In(namespace string) *HTTP {
	c := *t
	c.namespace = namespace
	return &c
}

// Close closes idle connections.
func (t *HTTP) Close() error {
	t.client.CloseIdleConnections()
	return nil
}

// Acquire implements [Target].
func (t *HTTP) Acquire(ctx context.Context, c *traffic.Call) (Held, error) {
	body, err := json.Marshal(struct {
		Entity    string       `json:"entity"`
		Resource  string       `json:"resource"`
		Tokens    weir.Tokens  `json:"tokens"`
		Namespace string       `json:"namespace,omitempty"`
		Wait      traffic.Span `json:"wait,omitempty"`
	}{c.Entity, c.Resource, c.Tokens, t.namespace, traffic.Span(c.Wait)})
	if err != nil {
		return nil, err
	}
	code, text, err := t.send(ctx, http.MethodPost, "/v1/acquire", "application/json", body)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusTooManyRequests:
		return nil, nil //nolint:nilnil // a refusal is not an error
	case code != http.StatusOK:
		return nil, problem(code, text)
	}
	l := &httpLease{t: t, entity: c.Entity}
	if c.Adjust != nil || c.Hold > 0 {
		err = json.Unmarshal(text, &l.admitted)
	}
	return l, err
}

// Available implements [Target].
func (t *HTTP) Available(ctx context.Context, c *traffic.Call) error {
	q := url.Values{"entity": {c.Entity}, "resource": {c.Resource}}
	if t.namespace != "" {
		q.Set("namespace", t.namespace)
	}
	return t.want(ctx, http.MethodGet, "/v1/available?"+q.Encode(), "", nil)
}

type httpLease struct {
	t        *HTTP
	entity   string
	admitted struct {
		Lease  string
		Limits []struct {
			Entity, Period   string
			Requested, Burst int64
		}
	}
}

// path returns the path of the lease for a verb.
func (l *httpLease) path(verb string) string {
	return "/v1/leases/" + url.PathEscape(l.admitted.Lease) + "/" + verb
}

// Adjust implements [Held].
func (l *httpLease) Adjust(ctx context.Context, tokens weir.Tokens) ([]weir.Balance, error) {
	body, err := json.Marshal(map[string]weir.Tokens{"tokens": tokens})
	if err != nil {
		return nil, err
	}
	text, err := l.t.answer(ctx, http.MethodPost, l.path("adjust"), "application/json", body)
	if err != nil {
		return nil, err
	}
	return nil, json.Unmarshal(text, &struct{ Lease *string }{&l.admitted.Lease})
}

// Slots implements [Held].
func (l *httpLease) Slots() Slots {
	for _, s := range l.admitted.Limits {
		if s.Period == "slots" && s.Entity == l.entity {
			return Slots{s.Requested, s.Burst}
		}
	}
	return Slots{}
}

// Commit implements [Held].
func (l *httpLease) Commit(ctx context.Context) error {
	return l.t.want(ctx, http.MethodPost, l.path("commit"), "", nil)
}

// want sends a request that must succeed.
func (t *HTTP) want(ctx context.Context, method, path, kind string, body []byte) error {
	_, err := t.answer(ctx, method, path, kind, body)
	return err
}

// answer sends a request that must succeed, and returns the body of the answer.
func (t *HTTP) answer(ctx context.Context, method, path, kind string, body []byte) ([]byte, error) {
	code, text, err := t.send(ctx, method, path, kind, body)
	if err == nil && code >= 300 {
		err = problem(code, text)
	}
	return text, err
}

func (t *HTTP) send(ctx context.Context, method, path, kind string, body []byte) (code int, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, t.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, text, err
}

// problem turns a server's error response into an error.
func problem(code int, text []byte) error {
	var p struct{ Detail, Title string }
	_ = json.Unmarshal(text, &p) // the responder may not be weir
	p.Detail = cmp.Or(p.Detail, p.Title)
	return fmt.Errorf("%d %s: %s", code, http.StatusText(code), p.Detail)
}
