package weir_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store/memory"
)

// TestSpentIsTheLedger: over any history, the spending of a limit that observers are told equals what its bucket counts.
func TestSpentIsTheLedger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type key struct{ entity, limit string }
		told := map[key]int64{}
		note := func(entity string, spent iter.Seq2[string, int64]) {
			for limit, n := range spent {
				told[key{entity, limit}] += n
			}
		}
		obs := &weir.Observer{
			Decided:  func(_ context.Context, e weir.DecidedEvent) { note(e.Entity, e.Spent()) },
			Adjusted: func(_ context.Context, e weir.AdjustedEvent) { note(e.Entity, e.Spent()) },
		}
		if rapid.Bool().Draw(rt, "slow") { // then Allow has no quick form
			obs.Called = func(context.Context, weir.CalledEvent) {}
		}
		now := noon
		ctx := t.Context()
		lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return now }}), Observer: obs})
		must(t, err)
		defer lim.Close()
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{}, weir.PerMinute("rpm", 10)))
		must(t, admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: "b"}, weir.PerMinute("rpm", 10), weir.PerMinute("tpm", 30)))
		request := func() weir.Request {
			req := weir.Request{Entity: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "entity"), Resource: "api", Requests: rapid.Int64Range(0, 3).Draw(rt, "requests")}
			if req.Entity == "b" {
				req.Tokens = weir.Tokens{"tpm": rapid.Int64Range(0, 9).Draw(rt, "tpm")}
			}
			return req
		}
		var leases []*weir.Lease
		keep := func(ls []*weir.Lease, err error) {
			if err == nil {
				leases = append(leases, ls...)
			}
		}
		keep(lim.AcquireAll(ctx, []weir.Request{{Entity: "a", Resource: "api"}, {Entity: "b", Resource: "api"}})) // leases to return to
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(*rapid.T) { l, err := lim.Acquire(ctx, request()); keep([]*weir.Lease{l}, err) },
			"all":     func(*rapid.T) { keep(lim.AcquireAll(ctx, []weir.Request{request(), request(), request()})) },
			"allow": func(*rapid.T) {
				_, err := lim.Allow(ctx, request().Entity, "api")
				must(t, err)
			},
			"adjust": func(*rapid.T) {
				req := request()
				if rapid.Bool().Draw(rt, "back") {
					req.Requests = -req.Requests
				}
				must(t, errOf(lim.Adjust(ctx, req)))
			},
			"settle": func(*rapid.T) {
				l := rapid.SampledFrom(leases).Draw(rt, "lease")
				if n := rapid.Int64Range(-3, 3).Draw(rt, "delta"); n != 0 {
					_, _ = l.Adjust(ctx, weir.Tokens{"rpm": n}) // it may have ended, or hold fewer tokens
				} else {
					_ = l.Rollback(ctx)
				}
			},
			"time": func(*rapid.T) { now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(rt, "time"))) },
		})
		for _, entity := range []string{"a", "b"} {
			b, err := admin.New(lim).Buckets.Get(ctx, entity, "api")
			must(t, err)
			for _, l := range b.Limits {
				if got, want := told[key{entity, l.Limit.Name}], l.Debited-l.Returned; got != want {
					rt.Fatalf("%s of %s: told %d, the bucket counts %d", l.Limit.Name, entity, got, want)
				}
			}
		}
	})
}
