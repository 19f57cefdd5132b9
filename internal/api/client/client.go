// Package client runs operations of [api] through a server.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"
	"unicode"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/manifest/claims"
)

// Bounds on an answer: how long it may take and how large it may be.
const (
	timeout   = 2 * time.Minute
	maxAnswer = 256 << 20
)

// Client runs operations through a server. It is an [api.Caller].
type Client struct {
	base             *url.URL
	token, namespace string
	http             *http.Client
}

// New returns a client of the server with this URL, in a namespace; "" leaves it to the server. Without a token, it
// sends none; via is nil for the default transport. It returns a [*weir.ConfigError] if the URL or the token is not
// valid.
func New(server, token, namespace string, via http.RoundTripper) (*Client, error) {
	base, err := Base(server)
	if err != nil {
		return nil, err
	}
	if err := CheckHeader("token", token); err != nil {
		return nil, err
	}
	return &Client{base: base, token: token, namespace: namespace, http: secret.Client(timeout, via)}, nil
}

// Base parses the URL of a server, without a slash at the end. The URL must hold no user, query or fragment.
func Base(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, &weir.ConfigError{
			Field:  "server",
			Reason: fmt.Sprintf("%q is not a URL such as http://127.0.0.1:8080", secret.Address(server)),
		}
	case u.User != nil: // it may hold a password, so the error does not repeat the URL
		return nil, &weir.ConfigError{Field: "server", Reason: "the URL must hold no user or password"}
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, &weir.ConfigError{
			Field:  "server",
			Reason: fmt.Sprintf("%q must hold neither a query (?) nor a fragment (#)", secret.Address(server)),
		}
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// CheckHeader returns a [*weir.ConfigError] if a value cannot be sent in a header: if it holds a control character.
func CheckHeader(name, value string) error {
	if strings.ContainsFunc(value, unicode.IsControl) {
		return &weir.ConfigError{Field: name, Reason: "must hold no line end or other control character"}
	}
	return nil
}

// Call implements [api.Caller]. An error of the server has the same [weir.Code] as on a store.
func (c *Client) Call(ctx context.Context, o *api.Op, req any) (any, error) {
	r, err := c.request(ctx, o, req)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, c.unreachable(ctx, err)
	case res.StatusCode == http.StatusNoContent && o.MayBeEmpty():
		return nil, nil //nolint:nilnil // there is nothing to return
	case res.StatusCode >= http.StatusMultipleChoices:
		return nil, c.failure(res, body)
	}
	resp := o.NewResponse()
	err = json.Unmarshal(body, resp)
	if err == nil && string(bytes.TrimSpace(body)) == "null" {
		err = errors.New("it is null")
	}
	if err != nil {
		return nil, fmt.Errorf("the answer of %s cannot be read: is it a weir server? %w", c.base.Host, err)
	}
	return reflect.ValueOf(resp).Elem().Interface(), nil
}

// request writes the request of an operation, as its fields declare.
func (c *Client) request(ctx context.Context, o *api.Op, req any) (*http.Request, error) {
	query, members := url.Values{}, map[string]any{}
	header := http.Header{"Accept": {"application/json, application/problem+json"}}
	path, text := o.Path, ""
	if c.namespace != "" && o.Need != api.ReadAll && o.Need != api.AdminAll {
		query.Set("namespace", c.namespace)
	}
	for _, f := range o.Fields() {
		texts := f.Texts(req)
		switch f.In {
		case "path":
			if len(texts) == 0 || texts[0] == "." || texts[0] == ".." { // a path cannot carry these
				return nil, &weir.ConfigError{Field: f.Name, Reason: "must not be empty, . or .. through a server"}
			}
			path = strings.Replace(path, "{"+f.Name+"}", url.PathEscape(texts[0]), 1)
		case "query":
			if len(texts) > 0 {
				query.Set(f.Name, strings.Join(texts, ","))
			}
		case "header":
			for _, value := range texts {
				if err := CheckHeader(f.Name, value); err != nil {
					return nil, err
				}
			}
			header[http.CanonicalHeaderKey(f.Name)] = texts
		case "body": // manifests, which name their namespaces
			query.Del("namespace")
			text = strings.Join(texts, "")
			header.Set("Content-Type", "application/yaml")
		default:
			header.Set("Content-Type", "application/json")
			if f.Name == "namespace" && c.namespace != "" {
				query.Del(f.Name)
				members[f.Name] = c.namespace
			} else if !f.IsZero(req) {
				members[f.Name] = member(f.Ptr(req))
			}
		}
	}
	if header.Get("Content-Type") == "application/json" {
		object, err := json.Marshal(members)
		if err != nil {
			return nil, err
		}
		text = string(object)
	}
	r, err := http.NewRequestWithContext(ctx, o.Method, c.base.String()+path, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token)
	}
	r.Header, r.URL.RawQuery = header, query.Encode()
	return r, nil
}

// member returns a member of a body in the form that servers read. What is set to its default is "default".
func member(p any) any {
	switch v := p.(type) {
	case **weir.OnUnavailable:
		if **v == weir.OnUnavailableDefault {
			return "default"
		}
	case **admin.Thresholds:
		if **v == nil {
			return "default"
		}
	}
	return p
}

// unreachable returns the error of a request without an answer.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if at, ok := errors.AsType[*url.Error](err); ok { // without the URL, which may be long
		err = at.Err
	}
	return &failed{fmt.Sprintf("no answer from %s: %v", c.base.Host, err), weir.ErrUnavailable}
}

// failed is an error of a server.
type failed struct {
	text string
	is   error // the error that a store would have returned
}

func (e *failed) Error() string { return e.text }
func (e *failed) Unwrap() error { return e.is }

// problem is an error as servers send it. See RFC 9457 and docs/integrate/http.md.
type problem struct {
	Type     string       `json:"type"`
	Detail   string       `json:"detail"`
	Field    string       `json:"field"`
	Degraded bool         `json:"degraded"`
	Over     int64        `json:"over"`
	Limits   []api.Status `json:"limits"`

	claims.Sent
}

// causes are the errors of the library, by the name of the kind of problem.
var causes = map[string]error{
	"not-found": weir.ErrNotFound, "no-usage": weir.ErrNoUsage, "exists": weir.ErrExists, "conflict": weir.ErrConflict,
	"settled": weir.ErrSettled, "expired": weir.ErrExpired, "exceeds-burst": weir.ErrExceedsBurst,
	"max-debt": weir.ErrMaxDebt, "unknown-entity": weir.ErrUnknownEntity, "bucket-quota": weir.ErrBucketQuota,
	"no-limits": weir.ErrNoLimits, "overloaded": weir.ErrUnavailable, "temporary-reduced-capacity": weir.ErrUnavailable,
}

// failure turns an answer that reports a problem into an error.
func (c *Client) failure(res *http.Response, body []byte) error {
	var p problem
	if json.Unmarshal(body, &p) != nil || p.Type == "" {
		e := &failed{text: fmt.Sprintf("%s answers %s: is it a weir server?", c.base.Host, res.Status)}
		if res.StatusCode >= http.StatusInternalServerError { // such as of a proxy
			e.is = weir.ErrUnavailable
		}
		return e
	}
	_, kind, _ := strings.Cut(p.Type, "#")
	switch kind {
	case "invalid":
		return &weir.ConfigError{Field: cmp.Or(p.Field, "request"), Reason: strings.TrimPrefix(p.Detail, p.Field+": ")}
	case "quota-exceeded":
		over := &weir.ExceededError{Decision: weir.Decision{
			Degraded: p.Degraded, Over: p.Over, Statuses: api.Statuses(p.Limits),
		}}
		for _, s := range over.Statuses {
			over.RetryAfter = max(over.RetryAfter, s.RetryAfter)
		}
		return over
	case "stale":
		return &api.ChangedError{Detail: p.Detail}
	case "unauthenticated":
		p.Detail += ": set WEIR_TOKEN"
	}
	if err := p.Received(p.Detail); err != nil {
		return err
	}
	return &failed{p.Detail, causes[kind]}
}
