package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/store/memory"
)

// exampleLimiter returns a limiter whose clock stands still, so that the examples print the same each time.
func exampleLimiter(limits ...weir.Limit) *weir.Limiter {
	now := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	lim, err := weir.New(weir.Config{Store: memory.New(&memory.Config{Now: func() time.Time { return now }})})
	if err != nil {
		panic(err)
	}
	if err := admin.New(lim).Limits.Set(context.Background(), admin.Scope{}, limits...); err != nil {
		panic(err)
	}
	return lim
}

// get sends a request with a key, and prints the answer.
func get(h http.Handler, path, key string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, http.NoBody)
	r.Header.Set("X-Api-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("RateLimit"))
}

// Each key may send two requests a minute to each endpoint.
func Example() {
	lim := exampleLimiter(weir.PerMinute("rpm", 2)) // limits of the system: for all entities on all resources
	defer lim.Close()
	limit, err := httplimit.New(httplimit.Config{
		Limiter:  lim,
		Entity:   httplimit.ByHeader("X-Api-Key"),
		Resource: httplimit.ByPattern,
		Tokens:   httplimit.Each("rpm"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	orders := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "order ", r.PathValue("id")) })
	mux := http.NewServeMux()
	mux.Handle("GET /orders/{id}", limit.Wrap(orders))

	for id := range 3 {
		get(mux, fmt.Sprint("/orders/", id), "sk-alice")
	}
	get(mux, "/orders/3", "sk-bob")
	// Output:
	// 200 "rpm";r=1;t=30
	// 200 "rpm";r=0;t=30
	// 429 "rpm";r=0;t=30
	// 200 "rpm";r=1;t=30
}

// Limit requests without a key by address, behind a load balancer.
func ExampleFirst() {
	key := httplimit.First(
		httplimit.ByHeader("X-Api-Key"),
		httplimit.ByRemoteAddr(netip.MustParsePrefix("10.0.0.0/8")),
	)
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = "10.0.0.7:41000"
	r.Header.Set("X-Forwarded-For", "1.2.3.4, 203.0.113.9") // the client wrote the first, the load balancer the second
	fmt.Println(key(r))
	r.Header.Set("X-Api-Key", "sk-alice")
	fmt.Println(key(r))
	// Output:
	// ip-203.0.113.9 <nil>
	// key-099295a3784e1bd368dc348843a7398c <nil>
}

// Find the entity on which to set the limits of one key.
func ExampleKeyID() {
	ctx := context.Background()
	lim := exampleLimiter(weir.PerMinute("rpm", 2))
	defer lim.Close()
	err := admin.New(lim).Limits.Set(ctx, admin.Scope{Entity: httplimit.KeyID("sk-alice")}, weir.PerMinute("rpm", 600))
	fmt.Println(httplimit.KeyID("sk-alice"), err)
	// Output: key-099295a3784e1bd368dc348843a7398c <nil>
}

// A request costs as many bytes as its answer has, which is known only afterwards.
func ExampleConfig_after() {
	lim := exampleLimiter(weir.PerMinute("bytes", 1000))
	defer lim.Close()
	limit, err := httplimit.New(httplimit.Config{
		Limiter:  lim,
		Entity:   httplimit.ByHeader("X-Api-Key"),
		Resource: httplimit.Fixed("downloads"),
		Tokens:   func(*http.Request) (weir.Tokens, error) { return nil, nil }, // 0, refused while in debt
		After: func(_ *http.Request, res *httplimit.Result) weir.Tokens {
			return weir.Tokens{"bytes": res.Bytes}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1200)) }))
	for range 2 {
		get(h, "/", "sk-alice")
	}
	// Output:
	// 200 "bytes";r=1000;t=60
	// 429 "bytes";r=0;t=12
}
