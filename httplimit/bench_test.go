package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/httplimit"
	"github.com/weirlimits/weir/store/memory"
)

// BenchmarkWrap measures what the middleware adds to a handler that does nothing.
func BenchmarkWrap(b *testing.B) {
	lim, err := weir.New(weir.Config{Store: memory.New(nil)})
	if err != nil {
		b.Fatal(err)
	}
	defer lim.Close()
	for scope, limits := range map[admin.Scope][]weir.Limit{
		{}:                    {weir.PerSecond("rps", 1_000_000).WithBurst(1 << 40)},
		{Resource: "two"}:     {weir.PerSecond("rps", 1_000_000).WithBurst(1 << 40), weir.PerMinute("tpm", 1_000_000).WithBurst(1 << 40)},
		{Resource: "refused"}: {weir.PerDay("rps", 1)},
	} {
		if err := admin.New(lim).Limits.Set(b.Context(), scope, limits...); err != nil {
			b.Fatal(err)
		}
	}
	bare := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	run := func(name, resource string, key httplimit.KeyFunc, wrapped bool) {
		b.Run(name, func(b *testing.B) {
			m, err := httplimit.New(httplimit.Config{
				Limiter: lim, Entity: key, Resource: httplimit.Fixed(resource), Tokens: httplimit.Each("rps"),
			})
			if err != nil {
				b.Fatal(err)
			}
			var h http.Handler = bare
			if wrapped {
				h = m.Wrap(bare)
			}
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", http.NoBody)
			r.Header.Set("X-Api-Key", "sk-0123456789abcdef0123456789abcdef")
			w := &sink{h: make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
			}
		})
	}
	run("bare", "one", httplimit.Fixed("alice"), false)
	run("fixed", "one", httplimit.Fixed("alice"), true)
	run("key", "one", httplimit.ByHeader("X-Api-Key"), true)
	run("address", "one", httplimit.ByRemoteAddr(), true)
	run("two limits", "two", httplimit.Fixed("alice"), true)
	run("refused", "refused", httplimit.Fixed("alice"), true)
}

// sink keeps the fields and drops the rest.
type sink struct{ h http.Header }

func (s *sink) Header() http.Header         { return s.h }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}
