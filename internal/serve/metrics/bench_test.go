package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/store/memory"
)

// bench returns a limiter that refuses nothing, with or without metrics.
func bench(b *testing.B, with bool) *weir.Limiter {
	b.Helper()
	cfg := weir.Config{Store: memory.New(nil)}
	if with {
		m, err := metrics.New(metrics.Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(m.Close)
		cfg.Observer = m.Observer()
	}
	lim, err := weir.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { lim.Close() })
	if err := admin.New(lim).Limits.Set(b.Context(), admin.Scope{}, weir.Limit{Name: "rpm", Amount: 3e6, Period: time.Second, Burst: 1e12}); err != nil {
		b.Fatal(err)
	}
	return lim
}

// BenchmarkDecide measures what metrics add to a decision in memory: with one entity, and with more than the top lists
// hold.
func BenchmarkDecide(b *testing.B) {
	for _, entities := range []int{1, 10_000} {
		names := make([]string, entities)
		for i := range names {
			names[i] = "entity-" + strconv.Itoa(i)
		}
		for _, with := range []bool{false, true} {
			name := "/entities=" + strconv.Itoa(entities) + "/metrics=" + strconv.FormatBool(with)
			b.Run("Acquire"+name, func(b *testing.B) {
				lim := bench(b, with)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if _, err := lim.Acquire(b.Context(), weir.Request{Entity: names[i%entities], Resource: "api", Tokens: weir.Tokens{"rpm": 1}}); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
			b.Run("Allow"+name, func(b *testing.B) {
				lim := bench(b, with)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if _, err := lim.Allow(b.Context(), names[i%entities], "api"); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkServe measures what metrics add to a request over HTTP on the loopback address.
func BenchmarkServe(b *testing.B) {
	for _, with := range []string{"none", "metrics", "traces=0.01"} {
		b.Run(with, func(b *testing.B) {
			var m *metrics.Metrics
			cfg := weir.Config{Store: memory.New(nil)}
			sc := httpapi.Config{}
			if with != "none" {
				mc := metrics.Config{}
				if with != "metrics" {
					mc.Tracing, _ = tracing(b, 0.01)
				}
				var err error
				if m, err = metrics.New(mc); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(m.Close)
				cfg.Observer, sc.Metrics = m.Observer(), m
			}
			lim, err := weir.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { lim.Close() })
			if err := admin.New(lim).Limits.Set(b.Context(), admin.Scope{}, weir.Limit{Name: "rpm", Amount: 3e6, Period: time.Second, Burst: 1e12}); err != nil {
				b.Fatal(err)
			}
			sc.Limiter = lim
			srv, err := httpapi.New(sc)
			if err != nil {
				b.Fatal(err)
			}
			hs := httptest.NewServer(srv.Handler())
			b.Cleanup(hs.Close)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			b.Cleanup(client.CloseIdleConnections)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					body := strings.NewReader(`{"entity":"entity-` + strconv.Itoa(i%1000) + `","resource":"api","tokens":{"rpm":1}}`)
					resp, err := client.Post(hs.URL+"/v1/acquire", "application/json", body)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		})
	}
}
