package cells_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/internal/fleet/configflow"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/internal/testkit/dynamotest"
	"github.com/weirlimits/weir/internal/testkit/redistest"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/disk"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/memory"
	"github.com/weirlimits/weir/store/redis"
)

// unscanned is a fake on which a table can be created: a scan of it finds nothing.
type unscanned struct{ *dynamotest.Fake }

// Scan implements schema.Admin.
func (unscanned) Scan(context.Context, *awsdynamodb.ScanInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.ScanOutput, error) {
	return &awsdynamodb.ScanOutput{}, nil
}

// opened is a store that stays open when a limiter on it is closed.
type opened struct{ store.Store }

func (opened) Close() error { return nil }

// eachStore calls f with every kind of store.
func eachStore(t *testing.T, f func(t *testing.T, st store.Store)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) (store.Store, error){
		"memory": func(*testing.T) (store.Store, error) { return memory.New(nil), nil },
		"disk": func(t *testing.T) (store.Store, error) {
			t.Helper()
			return disk.Open(filepath.Join(t.TempDir(), "data"), nil)
		},
		"redis": func(t *testing.T) (store.Store, error) {
			t.Helper()
			return redis.Open(t.Context(), redis.Config{Address: "redis://" + redistest.Start(t).Addr})
		},
		"dynamodb": func(t *testing.T) (store.Store, error) {
			t.Helper()
			fake := new(dynamotest.Fake)
			if _, err := dynamodb.Create(t.Context(), unscanned{fake}, "weir", dynamodb.CreateConfig{}); err != nil {
				return nil, err
			}
			return dynamodb.New(dynamodb.Config{Client: fake, Table: "weir"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = st.Close() })
			f(t, st)
		})
	}
}

// patient is a timeout that a busy machine does not exceed, for tests in which no decision may be late.
const patient = time.Minute

// library returns a limiter on a store, as a program that uses the library makes it.
func library(t *testing.T, st store.Store, cfg weir.Config) *weir.Limiter {
	t.Helper()
	cfg.Store = opened{st}
	lim, err := weir.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// joined makes a store that of a cell, with an agent that has its share.
func joined(t *testing.T, st store.Store) (leave func()) {
	t.Helper()
	registry := memory.New(nil)
	reg := cells.Registry{Catalog: registry}
	if err := reg.Set(t.Context(), func(s *cells.Settings) { s.Mode = cells.Available }); err != nil {
		t.Fatal(err)
	}
	if err := reg.Join(t.Context(), "eu-1"); err != nil {
		t.Fatal(err)
	}
	agent, err := cells.New(cells.Config{Registry: registry, Local: st, Cell: "eu-1", Beat: 100 * time.Millisecond, Changed: func() {}})
	if err == nil {
		err = agent.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the store is the cell's", func() bool {
		cell, err := cells.Owner(t.Context(), st)
		return cell == "eu-1" && err == nil
	})
	return func() {
		if err := reg.Remove(t.Context(), "eu-1", true); err != nil {
			t.Error(err)
		}
		until(t, "the store is no cell's", func() bool {
			cell, err := cells.Owner(t.Context(), st)
			return cell == "" && err == nil
		})
		_ = agent.Close()
		_ = registry.Close()
	}
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !f(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// decisions are the ways to spend tokens.
func decisions(ctx context.Context, lim *weir.Limiter) map[string]error {
	req := weir.Request{Entity: "e", Resource: "r", Tokens: weir.Tokens{"rpm": 1}}
	_, acquired := lim.Acquire(ctx, req)
	_, all := lim.AcquireAll(ctx, []weir.Request{req, {Entity: "f", Resource: "r", Tokens: weir.Tokens{"rpm": 1}}})
	_, waited := lim.Wait(ctx, req)
	_, allowed := lim.Allow(ctx, "e", "r")
	_, adjusted := lim.Adjust(ctx, req)
	return map[string]error{"Acquire": acquired, "AcquireAll": all, "Wait": waited, "Allow": allowed, "Adjust": adjusted}
}

// A program that uses the library on the store of a cell would use whole limits, and is refused: from its first
// decision on or, if the store becomes the cell's while it runs, within the TTL of what it caches. Once the cell has
// left, the store's limits are whole again.
func TestOwned(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, st store.Store) {
		cfg := weir.Config{CacheTTL: 200 * time.Millisecond, StoreTimeout: patient, OnUnavailable: weir.OnUnavailableAllow}
		lim := library(t, st, cfg)
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 1000)); err != nil {
			t.Fatal(err)
		}
		for name, err := range decisions(t.Context(), lim) {
			if err != nil {
				t.Errorf("%s before the store is a cell's: %v", name, err)
			}
		}
		leave := joined(t, st)
		until(t, "it is refused", func() bool { return decisions(t.Context(), lim)["Allow"] != nil })
		for when, lim := range map[string]*weir.Limiter{
			"while it runs": lim, "from the start": library(t, st, cfg), "in another namespace": lim.In("default"),
			"nothing cached": library(t, st, weir.Config{CacheTTL: -1, StoreTimeout: patient}),
		} {
			for name, err := range decisions(t.Context(), lim) {
				if !errors.Is(err, weir.ErrOfCell) || !errors.Is(err, weir.ErrUnavailable) || weir.CodeOf(err) != weir.CodeUnavailable ||
					!strings.Contains(err.Error(), `cell "eu-1"`) || !strings.Contains(err.Error(), "call a server of the cell") {
					t.Errorf("%s, %s: %v", when, name, err)
				}
			}
			if _, err := lim.Explain(t.Context(), weir.Request{Entity: "e", Resource: "r"}); !errors.Is(err, weir.ErrOfCell) {
				t.Errorf("%s, Explain: %v", when, err)
			}
		}
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{Resource: "x"}, weir.PerMinute("rpm", 5)); err != nil {
			t.Errorf("what does not decide: %v", err)
		}
		within := library(t, st, weir.Config{NamespaceID: "default", StoreTimeout: patient})
		if _, err := within.Allow(t.Context(), "e", "r"); err != nil {
			t.Errorf("with the namespace's id, which reads nothing else: %v", err)
		}
		leave()
		until(t, "it is admitted again", func() bool { return decisions(t.Context(), lim)["Allow"] == nil })
		for name, err := range decisions(t.Context(), lim) {
			if err != nil {
				t.Errorf("%s after the cell has left: %v", name, err)
			}
		}
	})
}

// A server that runs on a store that becomes a cell's refuses within --cache-ttl, and is not ready. One on Redis, which
// announces changes, does so at once.
func TestOwnedServer(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, st store.Store) {
		ttl := 300 * time.Millisecond
		if _, ok := st.(store.Watcher); ok {
			ttl = time.Hour
		}
		counts, err := metrics.New(metrics.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(counts.Close)
		lim := library(t, st, weir.Config{CacheTTL: ttl, StoreTimeout: patient, Observer: counts.Observer()})
		if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 1000)); err != nil {
			t.Fatal(err)
		}
		flow := configflow.New(configflow.Config{Limiter: lim, Store: st, Poll: 50 * time.Millisecond})
		go func() { _ = flow.Run(t.Context()) }()
		var log bytes.Buffer // written by requests, which are in turn
		srv, err := httpapi.New(httpapi.Config{Config: decide.Config{
			Limiter: lim, Log: slog.New(slog.NewTextHandler(&log, nil)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		send := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			srv.Handler().ServeHTTP(w, r)
			return w
		}
		acquire := func() *httptest.ResponseRecorder {
			return send(http.MethodPost, "/v1/acquire", `{"entity": "e", "resource": "r", "tokens": {"rpm": 1}}`)
		}
		if w := acquire(); w.Code != http.StatusOK {
			t.Fatalf("before: %d %s", w.Code, w.Body)
		}
		defer joined(t, st)()
		until(t, "it refuses", func() bool { return acquire().Code == http.StatusServiceUnavailable })
		if w := acquire(); !strings.Contains(w.Body.String(), "the server needs --cell") {
			t.Errorf("it refuses with %s", w.Body)
		}
		if !strings.Contains(log.String(), `what="the server has no share of the limits"`) ||
			!strings.Contains(log.String(), "give --cell eu-1") || strings.Contains(log.String(), "in time") {
			t.Errorf("it logs %s", log.String())
		}
		page := httptest.NewRecorder()
		counts.Handler().ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		for outcome, want := range map[string]bool{"no_share": true, "failed": false} {
			counted := regexp.MustCompile(`weir_decisions_total\{outcome="` + outcome + `",resource="r"\} [1-9]`)
			if got := counted.MatchString(page.Body.String()); got != want {
				t.Errorf("it counts decisions as %s: %v", outcome, got)
			}
		}
		until(t, "it is not ready", func() bool { return send(http.MethodGet, "/readyz", "").Code == http.StatusServiceUnavailable })
	})
}

// thousand returns a limiter on a store, with a limit of a thousand a minute, that decides locally while the store is away.
func thousand(t *testing.T, st store.Store) *weir.Limiter {
	t.Helper()
	lim := library(t, st, weir.Config{OnUnavailable: weir.OnUnavailableLocal})
	if err := admin.New(lim).Limits.Set(t.Context(), admin.Scope{}, weir.PerMinute("rpm", 1000)); err != nil {
		t.Fatal(err)
	}
	return lim
}

// The check costs a read in each TTL, not in each decision.
func TestOwnedReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: memory.New(nil)}
		defer st.Store.Close()
		lim := thousand(t, st)
		for range 600 {
			if ok, err := lim.Allow(t.Context(), "e", "r"); !ok || err != nil {
				t.Fatal(ok, err)
			}
			time.Sleep(time.Second)
		}
		if st.reads < 9 || st.reads > 12 {
			t.Errorf("%d reads in ten minutes", st.reads)
		}
	})
}

// counted counts the reads of the cell's share, and fails once it is down.
type counted struct {
	store.Store

	reads int
	down  bool
}

var errDown = errors.New("down")

// Get implements store.Catalog.
func (c *counted) Get(ctx context.Context, keys ...store.Key) (store.Got, error) {
	if c.down {
		return store.Got{}, errDown
	}
	if keys[0] == record.SharesKey {
		c.reads++
	}
	return c.Store.Get(ctx, keys...)
}

// Take implements store.Store.
func (c *counted) Take(ctx context.Context, t store.Take) (store.Outcome, error) {
	if c.down {
		return store.Outcome{}, errDown
	}
	return c.Store.Take(ctx, t)
}

// A process that has found that the store is a cell's makes no local decisions from whole limits when the store is away.
func TestOwnedOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &counted{Store: memory.New(nil)}
		defer st.Store.Close()
		lim := thousand(t, st)
		if ok, err := lim.Allow(t.Context(), "e", "r"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		defer joined(t, st.Store)()
		time.Sleep(2 * time.Minute)
		if _, err := lim.Allow(t.Context(), "e", "r"); !errors.Is(err, weir.ErrOfCell) {
			t.Fatal(err)
		}
		st.down = true
		time.Sleep(2 * time.Minute)
		if ok, err := lim.Allow(t.Context(), "e", "r"); ok || err == nil {
			t.Errorf("admitted without the store: %v %v", ok, err)
		}
	})
}
