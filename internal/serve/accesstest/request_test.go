package accesstest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	weirv1 "github.com/weirlimits/weir/api/weir/v1"
)

// request makes the request of a row over HTTP. Those that are allowed succeed, or fail because of the content.
func (g *matrix) request(t *testing.T, r *row, a *asked, h *holder) *httptest.ResponseRecorder {
	t.Helper()
	entity, resource, name := "team-a/alice", "gpt-4", "x"
	if r.entity {
		entity = a.entity
	}
	if r.resource {
		resource = a.resource
	}
	if r.is("/v1/namespaces") {
		name = "nowhere"
	}
	id := url.PathEscape(entity)
	if r.is("/leases") {
		id = a.lease
	}
	target := strings.NewReplacer("{id}", id, "{name}", name, "{revision}", "1", "{entity}", url.PathEscape(entity), "{resource}", resource, "{limit}", "credits").Replace(r.path)
	body, q := "", make(url.Values)
	for key, value := range map[string]string{
		"namespace": a.namespace, "entity": entity, "resource": resource, "prefix": a.entity, "max": "1", "revision": "1",
	} {
		takes := map[string]bool{
			"namespace": r.where == "namespace" && !r.is("/v1/acquire") && !r.adjusts(), "entity": r.entity && !r.is("{") && r.method == "GET",
			"resource": r.resource && (!r.is("{") && r.method == "GET" || r.is("/balances")), "prefix": r.prefix,
			"max": r.is("/stream") || r.is("/watch"), "revision": r.is("/rollback") && r.is("/manifests"),
		}
		if takes[key] && value != "" {
			q.Set(key, value)
		}
	}
	switch r.method + " " + r.path {
	case "POST /v1/acquire", "POST /v1/acquire/batch", "POST /v1/adjust":
		msg := map[string]any{"entity": a.entity, "resource": a.resource, "tokens": map[string]int{"rpm": 1}}
		if a.namespace != "" {
			msg["namespace"] = a.namespace
		}
		if a.limits && r.adjusts() {
			msg["tokens"] = map[string]int{"rpm": -1}
		} else if a.limits {
			msg["limits"] = []string{"rpm:1/min"}
		}
		text, _ := json.Marshal(msg)
		if body = string(text); r.is("/batch") { // what counts comes last, after what most tokens may
			body = `{"requests":[{"namespace":"` + a.namespace + `","entity":"team-a/alice","resource":"gpt-4"},` + body + `]}`
			body = strings.Replace(body, `"namespace":"",`, "", 1)
		}
	case "POST /v1/entities/{entity}/balances/{limit}":
		body = `{"amount":1,"id":"x"}`
	case "POST /v1/leases/{id}/adjust":
		body = `{"tokens":{"rpm":-1}}`
	case "POST /v1/namespaces":
		body = `{"name":"blue"}`
	case "POST /v1/entities":
		body = `{"id":"team-a/alice"}`
	case "PATCH /v1/entities/{id}":
		body = `{"name":"A"}`
	case "PUT /v1/limits":
		body = `{"limits":["rpm:1000000/hour"]}`
	case "PUT /v1/system":
		body = `{"on_unavailable":"deny"}`
	}
	if r.where == "manifest" {
		body = `{"namespace":"` + a.namespace + `","manifest":"m"}`
	}
	if r.query != "" {
		target += "?" + r.query + "&" + q.Encode()
	} else if len(q) > 0 {
		target += "?" + q.Encode()
	}
	req := httptest.NewRequestWithContext(t.Context(), r.method, strings.TrimSuffix(target, "&"), strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if h.token != "" {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, req)
	return w
}

// message makes the message of a call.
func message(r *row, a *asked) proto.Message {
	acquire := &weirv1.AcquireRequest{Entity: a.entity, Resource: a.resource, Namespace: a.namespace, Tokens: map[string]int64{"rpm": 1}}
	if a.limits {
		acquire.Limits = []*weirv1.Limit{{Name: "rpm", Amount: 1, Period: durationpb.New(time.Minute)}}
	}
	switch _, method, _ := strings.Cut(r.path, "/"); {
	case method == "Acquire":
		return acquire
	case method == "AcquireBatch": // what counts comes last, after what most tokens may
		first := &weirv1.AcquireRequest{Entity: "team-a/alice", Resource: "gpt-4", Namespace: a.namespace}
		return &weirv1.AcquireBatchRequest{Requests: []*weirv1.AcquireRequest{first, acquire}}
	case method == "AdjustEntity":
		tokens := map[string]int64{"rpm": 1}
		if a.limits {
			tokens["rpm"] = -1
		}
		return &weirv1.AdjustEntityRequest{Entity: a.entity, Resource: a.resource, Namespace: a.namespace, Tokens: tokens}
	case method == "AddCredits":
		return &weirv1.AddCreditsRequest{Entity: a.entity, Resource: a.resource, Namespace: a.namespace, Limit: "credits", Amount: 1, Id: "x"}
	case method == "ListBalances":
		return &weirv1.ListBalancesRequest{Entity: a.entity, Resource: a.resource, Namespace: a.namespace}
	case method == "Adjust":
		return &weirv1.AdjustRequest{Lease: a.lease, Tokens: map[string]int64{"rpm": -1}}
	case method == "Commit":
		return &weirv1.CommitRequest{Lease: a.lease}
	case method == "Rollback":
		return &weirv1.RollbackRequest{Lease: a.lease}
	case method == "Renew":
		return &weirv1.RenewRequest{Lease: a.lease}
	case method == "Available":
		return &weirv1.AvailableRequest{Entity: a.entity, Resource: a.resource, Namespace: a.namespace}
	case r.path == "weir.v1.Limiter/Watch":
		return &weirv1.WatchRequest{Entity: a.entity, Resource: a.resource, Namespace: a.namespace}
	case method == "ShouldRateLimit":
		d := &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{
			{Key: "entity", Value: a.entity}, {Key: "resource", Value: a.resource},
		}}
		if a.limits {
			d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_MINUTE}
		}
		if a.namespace == "" {
			return &rlsv3.RateLimitRequest{Domain: "own", Descriptors: []*ratelimitv3.RateLimitDescriptor{d}}
		}
		return &rlsv3.RateLimitRequest{Domain: a.namespace, Descriptors: []*ratelimitv3.RateLimitDescriptor{d}}
	}
	return &emptypb.Empty{}
}

// call makes the call of a row, and receives one message if it is a stream.
func (g *matrix) call(t *testing.T, r *row, a *asked, h *holder) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if h.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+h.token)
	}
	stream, err := g.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+r.path)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(message(r, a)); err == nil { // otherwise RecvMsg returns why
		_ = stream.CloseSend()
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

// try makes a request, and returns how it was refused for want of access: "" if it was not.
func (g *matrix) try(t *testing.T, r *row, a *asked, h *holder) string {
	t.Helper()
	if r.method == "CALL" {
		err := g.call(t, r, a, h)
		switch st := status.Convert(err); {
		case st.Code() == codes.Unauthenticated, st.Code() == codes.PermissionDenied,
			r.where == "lease" && st.Code() == codes.NotFound:
			return st.Code().String() + ": " + st.Message()
		}
		return ""
	}
	w := g.request(t, r, a, h)
	if w.Code == 401 || w.Code == 403 || r.where == "lease" && w.Code == 404 {
		h := w.Header().Clone()
		h.Del("Date")
		return fmt.Sprintf("%d %v %s", w.Code, h, w.Body)
	}
	return ""
}
