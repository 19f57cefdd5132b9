package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// A namespace at its quota of live buckets is refused new ones, whatever on_unavailable is. Its others, and other
// namespaces, go on.
func TestBucketQuota(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{Config: decide.Config{MaxBuckets: 2}})
	if err := admin.New(f.lim).Limits.SetOnUnavailable(t.Context(), admin.Scope{}, weir.OnUnavailableAllow); err != nil {
		t.Fatal(err)
	}
	spend := func(namespace, entity, more string) string {
		return fmt.Sprintf(`{"namespace":%q,"entity":%q,"resource":"gpt-4","tokens":{"tpm":1}%s}`, namespace, entity, more)
	}
	f.must(t, 201, "POST", "/v1/namespaces", `{"name":"other"}`)
	f.must(t, 200, "PUT", "/v1/limits?namespace=other&resource=gpt-4", `{"limits":["tpm:1000/min"]}`)
	f.must(t, 200, "POST", "/v1/acquire", spend("default", "alice", ""))
	f.must(t, 200, "POST", "/v1/acquire", spend("default", "bob", ""))
	for _, more := range []string{"", `,"on_unavailable":"allow"`, `,"wait":"1s"`} {
		a := f.do(t, "POST", "/v1/acquire", spend("default", "mallory", more))
		if a.Code != 429 || a.JSON["type"] == nil || !strings.HasSuffix(a.JSON["type"].(string), "#bucket-quota") ||
			!strings.Contains(a.JSON["detail"].(string), "has 2 live ones") {
			t.Errorf("%s: %d %s", more, a.Code, a.Body)
		}
	}
	f.must(t, 200, "POST", "/v1/acquire", spend("default", "alice", ""))
	f.must(t, 200, "POST", "/v1/acquire", spend("other", "mallory", ""))
}

// A namespace has as many ids of adjustments remembered as live buckets. The same ids, and other namespaces, go on.
func TestBucketQuotaOfIDs(t *testing.T) {
	t.Parallel()
	f := setup(t, httpapi.Config{Config: decide.Config{MaxBuckets: 2}})
	f.must(t, 201, "POST", "/v1/namespaces", `{"name":"other"}`)
	f.must(t, 200, "PUT", "/v1/limits?namespace=other&resource=gpt-4", `{"limits":["tpm:1000/min"]}`)
	adjust := func(status int, namespace, id string) answer {
		t.Helper()
		return f.must(t, status, "POST", "/v1/adjust",
			fmt.Sprintf(`{"namespace":%q,"entity":"alice","resource":"gpt-4","tokens":{"tpm":1},"id":%q}`, namespace, id))
	}
	adjust(200, "default", "1")
	adjust(200, "default", "2")
	for range 2 {
		if a := adjust(429, "default", "3"); !strings.HasSuffix(a.JSON["type"].(string), "#bucket-quota") ||
			!strings.Contains(a.JSON["detail"].(string), "remembers 2 earlier ones") {
			t.Errorf("%s", a.Body)
		}
	}
	adjust(409, "default", "1")
	adjust(200, "other", "3")
}

// A token for all namespaces sets the quota of one, which applies at once. Refusals at the quota are logged once a minute.
func TestBucketQuotaOfNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := setup(t, httpapi.Config{Config: decide.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}})
		f.must(t, 201, "POST", "/v1/namespaces", `{"name":"other"}`)
		f.must(t, 200, "PUT", "/v1/limits?namespace=other&resource=gpt-4", `{"limits":["tpm:1000/min"]}`)
		take := func(status int, namespace, entity string) {
			t.Helper()
			f.must(t, status, "POST", "/v1/acquire",
				fmt.Sprintf(`{"namespace":%q,"entity":%q,"resource":"gpt-4","tokens":{"tpm":1}}`, namespace, entity))
		}
		for _, namespace := range []string{"default", "other"} {
			log.Reset()
			path := "/v1/namespaces/" + namespace
			take(200, namespace, "a")
			if a := f.must(t, 200, "PATCH", path, `{"max_buckets":1}`); a.JSON["max_buckets"] != 1.0 {
				t.Errorf("%s", a.Body)
			}
			if a := f.must(t, 200, "GET", path, ""); a.JSON["max_buckets"] != 1.0 {
				t.Errorf("%s", a.Body)
			}
			take(429, namespace, "b")
			take(429, namespace, "c")
			take(200, namespace, "a")
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "namespace="+namespace+" max_buckets=1") {
				t.Errorf("%s", text)
			}
			f.must(t, 200, "PATCH", path, `{"max_buckets":2}`)
			take(200, namespace, "b")
			f.must(t, 200, "PATCH", path, `{"max_buckets":0}`)
			take(200, namespace, "c")
			f.must(t, 400, "PATCH", path, `{"max_buckets":-1}`)
			f.must(t, 400, "PATCH", path, `{}`)
		}
		f.must(t, 404, "PATCH", "/v1/namespaces/none", `{"max_buckets":1}`)
	})
}

// What is set for a namespace is read with its name; for the default namespace, whose name is never looked up, once while
// it stays cached. Decisions on buckets that exist read nothing.
func TestBucketQuotaCost(t *testing.T) {
	t.Parallel()
	for namespace, most := range map[string]int{"default": 1, "other": 0} {
		st := &counting{Store: memory.New(nil)}
		f := over(t, st, httpapi.Config{})
		if namespace != weir.DefaultNamespace {
			f.must(t, 201, "POST", "/v1/namespaces", fmt.Sprintf(`{"name":%q}`, namespace))
		}
		f.must(t, 200, "PUT", "/v1/limits?namespace="+namespace, `{"limits":["tpm:1000/min"]}`)
		acquire := func(lim *weir.Limiter) int {
			was := st.gets.Load()
			for _, entity := range []string{"a", "b", "a"} {
				req := weir.Request{Entity: entity, Resource: "jobs", Tokens: weir.Tokens{"tpm": 1}}
				if _, err := lim.In(namespace).Acquire(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			return int(st.gets.Load() - was)
		}
		fresh := func() *weir.Limiter {
			lim, err := weir.New(weir.Config{Store: st})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { lim.Close() })
			return lim
		}
		served := fresh()
		if _, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: served}}); err != nil {
			t.Fatal(err)
		}
		if without, with := acquire(fresh()), acquire(served); with-without != most {
			t.Errorf("%s: %d reads of the catalog with a quota, %d without", namespace, with, without)
		}
	}
}

// counting counts the reads of the catalog.
type counting struct {
	store.Store
	gets atomic.Int64
}

func (c *counting) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, keys...)
}

// 200,000 invented names leave a server with as many live buckets as the quota, and, beside what it caches, with less than
// a kilobyte for each of them.
func TestInventedNames(t *testing.T) { //nolint:paralleltest // others would be measured, too
	const most = 10_000
	st := memory.New(nil)
	lim, err := weir.New(weir.Config{Store: st, CacheEntries: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer lim.Close()
	if _, err := httpapi.New(httpapi.Config{Config: decide.Config{Limiter: lim, MaxBuckets: most}}); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerHour("rph", 10)); err != nil {
		t.Fatal(err)
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, admitted := heap(), 0
	for i := range 200_000 {
		_, err := lim.Acquire(t.Context(), weir.Request{Entity: fmt.Sprint("e", i), Resource: "jobs", Requests: 10})
		switch weir.CodeOf(err) {
		case weir.CodeOK:
			admitted++
		case weir.CodeBucketQuota:
		default:
			t.Fatal(err)
		}
	}
	grown, live := heap()-before, 0
	for q := (store.BucketQuery{Namespace: weir.DefaultNamespace, Max: 1000}); ; {
		page, err := st.Buckets(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		live += len(page.States)
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if admitted != most || live != most || grown > most<<10 {
		t.Errorf("%d admitted, %d live of %d, %d bytes", admitted, live, most, grown)
	}
}
