package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// batchOf returns the body of a batch.
func batchOf(options string, requests ...string) string {
	return `{` + options + `"requests":[` + strings.Join(requests, ",") + `]}`
}

func demand(entity, rest string) string {
	return `{"entity":"` + entity + `","resource":"gpt-4",` + rest + `}`
}

func results(a answer) (all []map[string]any) {
	list, _ := a.JSON["results"].([]any)
	for _, r := range list {
		all = append(all, r.(map[string]any))
	}
	return all
}

// TestBatch checks that each request of a batch gets the answer that it would get alone.
func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		f.acquire(t, "500")
		a := f.must(t, 200, "POST", "/v1/acquire/batch", batchOf("", demand("alice", `"tokens":{"tpm":501}`),
			demand("bob", `"tokens":{"tpm":400}`), `{"entity":"alice","resource":"other"}`,
			demand("bob", `"tokens":{"nope":1}`), demand("bob", `"tokens":{"tpm":2000}`)))
		var got []string
		for _, r := range results(a) {
			if r["allowed"] == true {
				got = append(got, fmt.Sprint("allowed ", r["limits"].([]any)[1].(map[string]any)["available"]))
				continue
			}
			_, kind, _ := strings.Cut(r["type"].(string), "#")
			got = append(got, fmt.Sprint(r["status"], " ", kind, " ", r["field"], " ", len(r), " members"))
		}
		want := "429 quota-exceeded <nil> 7 members; allowed 600; 422 no-limits <nil> 4 members; " +
			"400 invalid tokens.nope 5 members; 422 exceeds-burst <nil> 4 members"
		if strings.Join(got, "; ") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
		}
		f.must(t, 204, "POST", "/v1/leases/"+results(a)[1]["lease"].(string)+"/rollback", "")
		f.must(t, 200, "POST", "/v1/acquire", demand("bob", `"tokens":{"tpm":1000}`))
	})
}

// TestBatchAtomic checks that an atomic batch is admitted as a whole, or refused like a single request.
func TestBatchAtomic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, httpapi.Config{})
		f.must(t, 422, "POST", "/v1/acquire/batch", batchOf(`"atomic":true,`, demand("alice", `"tokens":{"tpm":600}`),
			demand("alice", `"tokens":{"tpm":600}`))) // in total
		a := f.must(t, 200, "POST", "/v1/acquire/batch", batchOf(`"atomic":true,`, demand("alice", `"tokens":{"tpm":600}`),
			demand("alice", `"tokens":{"tpm":300}`)))
		if got := f.available(t); len(results(a)) != 2 || got != 100 {
			t.Errorf("%d are left after 900 of 1000: %s", got, a.Body)
		}
		a = f.must(t, 429, "POST", "/v1/acquire/batch", batchOf(`"atomic":true,`, demand("bob", `"tokens":{"tpm":1}`),
			demand("alice", `"tokens":{"tpm":160}`)))
		if a.Header().Get("RateLimit") == "" || a.Header().Get("Retry-After") < "4" || a.JSON["violated-policies"] == nil {
			t.Errorf("got %v %s", a.Header(), a.Body)
		}
		if got := f.available(t); got != 100 {
			t.Errorf("%d are left: a refused batch has spent", got)
		}
		f.must(t, 200, "POST", "/v1/acquire", demand("bob", `"tokens":{"tpm":1000}`))
	})
}

// TestBatchMistakes checks that a mistake fails the batch before anything is spent.
func TestBatchMistakes(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{})
	many := strings.Split(strings.Repeat(demand("alice", `"tokens":{}`)+";", 1001), ";")[:1001]
	first := demand("alice", `"tokens":{"rpm":1,"tpm":1}`)
	for _, tt := range []struct{ field, body string }{
		{"requests", batchOf("")},
		{"requests", `{"atomic":true}`},
		{"requests", `{"requests":{}}`},
		{"requests", batchOf("", many...)},
		{"requests", `{"requests":[` + strings.Repeat("{},", 300_000) + `{}]}`},
		{"requests[1]", batchOf("", first, "7")},
		{"requests[1].wait", batchOf("", first, demand("alice", `"wait":"1s"`))},
		{"requests[1].entity", batchOf("", first, demand("alice", `"entity":"bob"`))},
		{"requests[1].tokens", batchOf("", first, demand("alice", `"tokens":null`))},
		{"requests[1].tokens.rpm", batchOf("", first, demand("alice", `"tokens":{"rpm":0.5}`))},
		{"requests[1].limits[0].amount", batchOf("", first, demand("alice", `"limits":[{"name":"x","amount":0,"period":"min"}]`))},
		{"requests[1].on_unavailable", batchOf("", first, demand("alice", `"on_unavailable":"maybe"`))},
		{"requests[1].namespace", batchOf(`"atomic":true,`, first, demand("alice", `"namespace":"blue"`))},
		{"requests[1].tokens.nope", batchOf(`"atomic":true,`, first, demand("alice", `"tokens":{"nope":1}`))},
		{"atomc", batchOf(`"atomc":true,`, first)},
		{"query", "?"},
	} {
		to := "/v1/acquire/batch"
		if tt.body == "?" {
			to, tt.body = to+"?atomic=true", batchOf("", first)
		}
		a := f.must(t, 400, "POST", to, tt.body)
		if a.JSON["field"] != tt.field {
			t.Errorf("%.100s: got the field %v, want %s: %s", tt.body, a.JSON["field"], tt.field, a.Body)
		}
	}
	if got := f.available(t); got != 1000 {
		t.Errorf("%d of 1000 are left: a mistake has spent", got)
	}
	if a := f.must(t, 200, "POST", "/v1/acquire/batch", batchOf("", many[:1000]...)); len(results(a)) != 1000 {
		t.Errorf("1,000 requests have %d results", len(results(a)))
	}
	long := `"resource":"` + strings.Repeat("r", 256) + `","limits":["` + strings.Repeat("l", 200) + `:1000000000/day:1000000000"]`
	for i := range many[:1000] {
		many[i] = `{"entity":"` + strings.Repeat("e", 250) + fmt.Sprint(i) + `",` + long + `}`
	}
	f.must(t, 200, "POST", "/v1/acquire/batch", batchOf("", many[:1000]...)) // fits into a body
}

// TestBatchIsHeld checks that what a batch's answer holds in memory is reserved before anything is spent.
func TestBatchIsHeld(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{Config: decide.Config{Held: conns.NewBudget(256 << 10)}})
	many := strings.Split(strings.Repeat(demand("alice", `"tokens":{"rpm":1}`)+";", 500), ";")[:500]
	f.must(t, 503, "POST", "/v1/acquire/batch", batchOf("", many...))
	av, err := f.lim.Available(t.Context(), "alice", "gpt-4")
	if err != nil || av.Statuses[0].Available != 10 {
		t.Errorf("%+v, %v", av, err)
	}
	f.must(t, 200, "POST", "/v1/acquire/batch", batchOf(`"brief":true,`, many...))
}

// TestBatchLongResults checks that the results of a batch hold no more than the budget, however many limits each request has:
// those for which there is no room are short, and still right.
func TestBatchLongResults(t *testing.T) {
	t.Parallel()
	const budget, n = 2 << 20, 100
	f := setup(t, httpapi.Config{Config: decide.Config{Held: conns.NewBudget(budget)}})
	entity, resource, limit := f.long(t)
	one := `{"entity":"` + entity + `","resource":"` + resource + `","tokens":{"` + limit + `":1}}`
	many := batchOf("", strings.Split(strings.Repeat(one+";", n), ";")[:n]...)
	for _, allowed := range []int{50, 0} {
		a := f.must(t, 200, "POST", "/v1/acquire/batch", many)
		if a.Body.Len() > budget {
			t.Errorf("the answer has %d bytes, the budget %d", a.Body.Len(), budget)
		}
		got, long := 0, 0
		for i, r := range results(a) {
			switch limits, _ := r["limits"].([]any); {
			case r["allowed"] == true:
				got++
			case r["status"] != 429.0:
				t.Fatalf("result %d: %v", i, r)
			case len(limits) > 0:
				long++
			}
		}
		if got != allowed || allowed == 0 && long == 0 || len(results(a)) != n {
			t.Errorf("%d of %d are allowed, want %d; %d refusals are long", got, len(results(a)), allowed, long)
		}
	}
}

// TestLongSlots checks that a request gets no slot if there is no memory for the answer with the lease that would hold it.
func TestLongSlots(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{Config: decide.Config{Held: conns.NewBudget(256 << 10)}})
	entity, resource, limit := f.long(t)
	scope := admin.Scope{Entity: entity, Resource: resource}
	if err := admin.New(f.lim).Limits.Set(t.Context(), scope, weir.Limit{Name: "parallel", Slots: 1}); err != nil {
		t.Fatal(err)
	}
	one := `{"entity":"` + entity + `","resource":"` + resource + `","tokens":{"` + limit + `":1}}`
	for range 2 {
		f.must(t, 503, "POST", "/v1/acquire", one)
		av, err := f.lim.Available(t.Context(), entity, resource)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range av.Statuses {
			if s.Limit == "parallel" && s.Available != 1 || s.Limit == limit && s.Available != 50 {
				t.Errorf("%d left of %s", s.Available, s.Limit)
			}
		}
	}
}

// TestBatchLongSlots checks that whoever cannot be told the lease that holds a slot does not get the slot, and that of a batch
// that is admitted together nobody does.
func TestBatchLongSlots(t *testing.T) {
	t.Parallel()
	const n, slots = 20, 100
	f := setup(t, httpapi.Config{Config: decide.Config{Held: conns.NewBudget(2 << 20)}})
	entity, resource, limit := f.long(t)
	scope := admin.Scope{Entity: entity, Resource: resource}
	if err := admin.New(f.lim).Limits.Set(t.Context(), scope, weir.Limit{Name: "parallel", Slots: slots}); err != nil {
		t.Fatal(err)
	}
	one := `{"entity":"` + entity + `","resource":"` + resource + `","tokens":{"` + limit + `":1}}`
	many := strings.Split(strings.Repeat(one+";", n), ";")[:n]
	holds := func(want int64) {
		t.Helper()
		av, err := f.lim.Available(t.Context(), entity, resource)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range av.Statuses {
			if s.Limit == "parallel" && s.Available != slots-want || s.Limit == limit && s.Available != 50-want {
				t.Errorf("%d left of %s, %d leases", s.Available, s.Limit, want)
			}
		}
	}
	f.must(t, 503, "POST", "/v1/acquire/batch", batchOf(`"atomic":true,`, many...))
	holds(0)
	var got int64
	for i, r := range results(f.must(t, 200, "POST", "/v1/acquire/batch", batchOf("", many...))) {
		switch {
		case r["allowed"] == true && r["lease"] != nil:
			got++
		case r["status"] != 503.0:
			t.Errorf("result %d: %v", i, r)
		}
	}
	if got == 0 || got == n {
		t.Errorf("%d leases", got)
	}
	holds(got)
}
