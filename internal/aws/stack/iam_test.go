package stack_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/aws/stack"
	"github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/testkit/cloudtest"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// patient is a timeout that suits a busy machine.
const patient = time.Minute

// tableOf is a table of an engine, and a recorder of the calls to it.
type tableOf struct {
	t      *testing.T
	name   string
	direct *awsdynamodb.Client
	rec    *cloudtest.Recorder
}

func newTable(t *testing.T) *tableOf {
	t.Helper()
	engine := dynamotest.Engine(t)
	tb := &tableOf{t: t, name: dynamotest.Table(t), direct: dynamotest.Client(t, engine), rec: cloudtest.Record(t, engine)}
	if _, err := dynamodb.Create(t.Context(), tb.direct, tb.name, dynamodb.CreateConfig{}); err != nil {
		t.Fatal(err)
	}
	return tb
}

// limiter returns a limiter over the table, through the given client, which may be the recorder's.
func (tb *tableOf) limiter(client dynamodb.API, cfg weir.Config) *weir.Limiter {
	tb.t.Helper()
	st, err := dynamodb.New(dynamodb.Config{Client: client, Table: tb.name, CallTimeout: patient, WriteTimeout: patient})
	must(tb.t, err)
	cfg.Store, cfg.StoreTimeout = st, patient
	lim, err := weir.New(cfg)
	must(tb.t, err)
	tb.t.Cleanup(func() {
		if err := lim.Close(); err != nil {
			tb.t.Error(err)
		}
	})
	return lim
}

func (tb *tableOf) recorded() *awsdynamodb.Client { return dynamotest.Client(tb.t, tb.rec.URL) }

// choked throttles writes to one bucket by key, so that the store splits it.
type choked struct {
	dynamodb.API
	left atomic.Int32
}

func (c *choked) UpdateItem(ctx context.Context, in *awsdynamodb.UpdateItemInput, opts ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateItemOutput, error) {
	pk, ok := in.Key["PK"].(*types.AttributeValueMemberS)
	if ok && strings.HasSuffix(pk.Value, "/BUCKET#key#api#0") && c.left.Add(-1) >= 0 {
		return nil, &types.ThrottlingException{ThrottlingReasons: []types.ThrottlingReason{{Reason: aws.String("TableWriteKeyRangeThroughputExceeded")}}}
	}
	return c.API.UpdateItem(ctx, in, opts...)
}

func policy(t *testing.T, values stack.Values, id string) cloudtest.Policy {
	t.Helper()
	p, err := cloudtest.PolicyOf(resolved(t, stack.Weir, values), id)
	must(t, err)
	return p
}

// errOf returns the error of a call that returns something else, too.
func errOf[T any](_ T, err error) error { return err }

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// decide makes every call that a deciding process makes.
func decide(t *testing.T, lim *weir.Limiter, entity string) {
	t.Helper()
	ctx := t.Context()
	req := weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": 2}}
	lease, err := lim.Acquire(ctx, req)
	must(t, err)
	must(t, errOf(lease.Adjust(ctx, weir.Tokens{"rpm": -1})), lease.Commit(ctx))
	must(t, lim.Do(ctx, req, func(context.Context, *weir.Lease) error { return nil }))
	lease, err = lim.Wait(ctx, req)
	must(t, err)
	must(t, lease.Rollback(ctx))
	leases, err := lim.AcquireAll(ctx, []weir.Request{req, {Entity: entity, Resource: "other", Tokens: weir.Tokens{"rpm": 1}}})
	must(t, err)
	for _, l := range leases {
		must(t, l.Commit(ctx))
	}
	_, err = lim.Allow(ctx, entity, "api")
	must(t, err)
	must(t, errOf(lim.Adjust(ctx, req)))
	_, err = lim.Available(ctx, entity, "third")
	must(t, err)
	if _, err := lim.Acquire(ctx, weir.Request{Entity: entity, Resource: "api", Tokens: weir.Tokens{"rpm": 1001}}); err == nil {
		t.Fatal("1,001 of 1,000 were admitted")
	}
}

// covered fails unless a policy allows what was called, and nothing that was not.
func covered(t *testing.T, p cloudtest.Policy, who cloudtest.Principal, calls []cloudtest.Call) {
	t.Helper()
	for _, c := range calls {
		if !p.Allows(who, c) {
			t.Errorf("the policy lacks %+v", c)
		}
	}
	for _, what := range p.Idle(who, calls) {
		t.Errorf("the policy allows %s, which nothing calls", what)
	}
}

func (tb *tableOf) prepare(lim *weir.Limiter) {
	tb.t.Helper()
	ctx := tb.t.Context()
	must(tb.t,
		admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerDay("rpm", 1000)),
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "org"}),
		admin.New(lim).Entities.Create(ctx, admin.Entity{ID: "key", Parent: "org", Cascade: true}),
	)
}

func TestAcquirePolicy(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	tb.prepare(tb.limiter(tb.direct, weir.Config{}))
	client := &choked{API: tb.recorded()}
	st, err := dynamodb.Open(t.Context(), dynamodb.Config{Client: client, Table: tb.name, CallTimeout: patient, WriteTimeout: patient})
	must(t, err)
	client.left.Store(3)
	tb.leftover("default/BUCKET#key#api#1")
	must(t, errOf(leaseid.StoredKey(t.Context(), tb.limiter(tb.direct, weir.Config{})))) // by whoever configures
	lim := tb.limiter(client, weir.Config{})
	must(t, errOf(leaseid.StoredKey(t.Context(), lim)))
	decide(t, lim, "key")
	_, err = st.Split(t.Context(), store.Bucket{Namespace: "default", Entity: "key", Resource: "api"}, 2)
	must(t, err)
	must(t, st.Close())
	decide(t, lim, "key")
	lease, err := lim.Acquire(t.Context(), weir.Request{Entity: "key", Resource: "api", Tokens: weir.Tokens{"rpm": 2}})
	must(t, err)
	resumed, err := lim.LeaseFromToken(t.Context(), lease.Token("lease-1", time.Now().Add(time.Minute)))
	must(t, err)
	must(t, resumed.Rollback(t.Context()))
	must(t, lim.Close()) // hands over the remaining counts
	calls := tb.rec.Calls()
	covered(t, policy(t, nil, "AcquirePolicy"), nil, calls)
	for _, key := range []string{"_/SYSTEM#", "_/LEASE#", "default/BUCKET#key#api#1", "default/TALLY#", "weir.secrets/SYSTEM#"} {
		if !slices.ContainsFunc(calls, func(c cloudtest.Call) bool {
			return slices.ContainsFunc(c.Keys, func(k string) bool { return strings.HasPrefix(k, key) })
		}) {
			t.Errorf("nothing asked for %s: the test does not do all that it is to do", key)
		}
	}
}

// leftover puts a shard that has expired and is not deleted yet.
func (tb *tableOf) leftover(pk string) {
	tb.t.Helper()
	s := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	n := func(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }
	must(tb.t, errOf(tb.direct.PutItem(tb.t.Context(), &awsdynamodb.PutItemInput{TableName: &tb.name, Item: map[string]types.AttributeValue{
		"PK": s(pk), "SK": s("#STATE"), "id": n("1"), "sc": n("2"), "at": n("1"), "wc": n("1"), "ttl": n("1"),
	}})))
}

// changes reports whether a call writes anything but a bucket, the counts of a process or the id of a lease.
func changes(c cloudtest.Call) bool {
	deciding := func(k string) bool {
		return strings.Contains(k, "/BUCKET#") || strings.Contains(k, "/TALLY#") || strings.HasPrefix(k, "_/LEASE#")
	}
	switch c.Action {
	case "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem":
		return !slices.ContainsFunc(c.Keys, deciding)
	}
	return false
}

// A tenant's policies allow everything in its own namespace, and nothing in another namespace or on what all namespaces
// share.
func TestTenantPolicies(t *testing.T) {
	t.Parallel()
	tb := newTable(t)
	owner := tb.limiter(tb.direct, weir.Config{})
	var spaces [2]admin.Namespace
	for i, name := range []string{"one", "two"} {
		ns, err := admin.New(owner).Namespaces.Create(t.Context(), name)
		must(t, err)
		spaces[i] = ns
	}
	made := map[string][2][]cloudtest.Call{}
	for i, ns := range spaces {
		client := &choked{API: tb.recorded()}
		lim := tb.limiter(client, weir.Config{Namespace: ns.Name, NamespaceID: ns.ID})
		record := func(id string) {
			all := made[id]
			all[i] = append(all[i], slices.DeleteFunc(tb.rec.Calls(), asksWhetherBooked)...)
			made[id] = all
		}
		tb.prepare(lim)
		record("NamespaceFullPolicy")
		client.left.Store(3)
		tb.leftover(ns.ID + "/BUCKET#key#api#1")
		decide(t, lim, "key")
		st, err := dynamodb.New(dynamodb.Config{Client: client, Table: tb.name, CallTimeout: patient, WriteTimeout: patient})
		must(t, err)
		_, err = st.Split(t.Context(), store.Bucket{Namespace: ns.ID, Entity: "key", Resource: "api"}, 2)
		must(t, err, st.Close(), lim.Close())
		record("NamespaceAcquirePolicy")
		lim = tb.limiter(tb.recorded(), weir.Config{Namespace: ns.Name, NamespaceID: ns.ID})
		look(t, lim)
		record("NamespaceReadPolicy")
		configure(t, lim)
		record("NamespaceFullPolicy")
		all := made["NamespaceFullPolicy"]
		all[i] = slices.Concat(all[i], made["NamespaceAcquirePolicy"][i], made["NamespaceReadPolicy"][i])
		made["NamespaceFullPolicy"] = all
	}
	lesser := make(map[string]cloudtest.Policy)
	for _, id := range []string{"AcquirePolicy", "ReadPolicy", "NamespaceAcquirePolicy", "NamespaceReadPolicy"} {
		lesser[id] = policy(t, nil, id)
	}
	for id, calls := range made {
		p := policy(t, nil, id)
		for i, ns := range spaces {
			who := cloudtest.Principal{"weir-namespace": ns.ID}
			covered(t, p, who, calls[i])
			for name, less := range lesser {
				for _, c := range made["NamespaceFullPolicy"][i] {
					if changes(c) && less.Allows(who, c) {
						t.Errorf("%s may make %+v", name, c)
					}
				}
			}
			for _, c := range calls[1-i] {
				if p.Allows(who, c) {
					t.Errorf("%s: %s may make another's %+v", id, ns.Name, c)
				}
			}
			if slices.ContainsFunc(calls[i], func(c cloudtest.Call) bool { return p.Allows(nil, c) }) {
				t.Errorf("%s: one without the tag may make calls", id)
			}
		}
		for _, grant := range p.Grants() {
			action, index, _ := strings.Cut(grant, " ")
			for _, key := range []string{"_/SYSTEM#", "_/LEASE#x", "_/AUDIT#namespace:two", "_/IDX#3", "default/SYSTEM#"} {
				c := cloudtest.Call{Action: action, Index: index, Keys: []string{spaces[0].ID + "/SYSTEM#", key}}
				if p.Allows(cloudtest.Principal{"weir-namespace": spaces[0].ID}, c) {
					t.Errorf("%s allows %+v", id, c)
				}
			}
		}
	}
}

// asksWhetherBooked reports whether a call reads if anything books usage in the store. A tenant's roles refuse that read,
// and the store does without: see TestUsageWithoutLeave in store/dynamodb.
func asksWhetherBooked(c cloudtest.Call) bool {
	return c.Action == "dynamodb:BatchGetItem" && slices.Equal(c.Keys, []string{"_/SYSTEM#"})
}

// look reads everything that can be read in a namespace.
func look(t *testing.T, lim *weir.Limiter) {
	t.Helper()
	ctx := t.Context()
	parts.Of(lim).Policies.Expire()
	_, err := admin.New(lim).Entities.Get(ctx, "key")
	must(t, err)
	_, err = admin.New(lim).Entities.List(ctx, admin.EntityQuery{})
	must(t, err)
	_, err = admin.New(lim).Entities.List(ctx, admin.EntityQuery{Parent: "org"})
	must(t, err)
	_, err = admin.New(lim).Limits.Get(ctx, admin.Scope{})
	must(t, err)
	_, err = admin.New(lim).Limits.List(ctx, admin.LimitsQuery{Resource: "api"})
	must(t, err)
	_, err = admin.New(lim).Buckets.List(ctx, admin.BucketQuery{})
	must(t, err)
	_, err = admin.New(lim).Buckets.Get(ctx, "key", "api")
	must(t, err)
	_, err = admin.New(lim).Audit.List(ctx, admin.AuditQuery{})
	must(t, err)
	_, err = lim.Explain(ctx, weir.Request{Entity: "key", Resource: "api", Tokens: weir.Tokens{"rpm": 1}})
	must(t, err)
	_, err = lim.Available(ctx, "key", "api")
	must(t, err)
	_, err = admin.New(lim).Usage.Windows(ctx, admin.UsageQuery{Window: admin.Hourly, By: admin.ByEntity, Entity: "key"})
	if !errors.Is(err, store.ErrNoUsage) {
		must(t, err)
	}
	_, err = admin.New(lim).Manifests.Revisions(ctx, admin.RevisionQuery{Manifest: "m"})
	must(t, err)
}

// configure changes everything that can be changed in a namespace.
func configure(t *testing.T, lim *weir.Limiter) {
	t.Helper()
	ctx := t.Context()
	must(t,
		admin.New(lim).Limits.Set(ctx, admin.Scope{Resource: "api"}, weir.PerDay("rpm", 10)),
		admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "key", Resource: "api"}, weir.PerDay("rpm", 10)),
		admin.New(lim).Limits.SetOnUnavailable(ctx, admin.Scope{}, weir.OnUnavailableAllow),
		admin.New(lim).Buckets.Reset(ctx, "key", "api"),
		admin.New(lim).Limits.Delete(ctx, admin.Scope{Resource: "api"}),
	)
	lock, err := admin.New(lim).Manifests.Lock(ctx, "m", time.Minute)
	must(t, err)
	must(t, lock.Release(ctx))
	_, err = admin.New(lim).Entities.Update(ctx, "key", admin.EntityUpdate{Name: aws.String("Key")})
	must(t, err)
	must(t, admin.New(lim).Entities.Delete(ctx, "key", admin.DeleteOptions{}))
}
