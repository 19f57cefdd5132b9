package serve

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
)

// metricsFlags configure metrics and traces, and where they are served or sent.
type metricsFlags struct {
	Address    string   `json:"metrics"`
	Resources  int      `json:"metrics_resources" range:"1..10000" default:"100"`
	Namespaces int      `json:"metrics_namespaces" range:"0..100" default:"0"`
	OTLP       string   `json:"otlp_endpoint"`
	Ratio      *float64 `json:"trace_ratio" range:"0..1"`

	tracing *metrics.Tracing
	counts  *metrics.Metrics
}

func (f *metricsFlags) check() error {
	if f.Address != "" {
		if _, _, err := net.SplitHostPort(f.Address); err != nil {
			return kit.Usagef("--metrics %q is not HOST:PORT, such as 127.0.0.1:9090", f.Address)
		}
	}
	u, err := url.Parse(f.OTLP)
	if f.OTLP != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return kit.Usagef("--otlp-endpoint %q is not a URL such as http://127.0.0.1:4318", secret.Address(f.OTLP))
	}
	return nil
}

// open starts measuring, and opens the address for scrapes.
func (f *metricsFlags) open(ctx context.Context, s *serving) (err error) {
	if name := metrics.TracingSends(); name != "" {
		if err := s.run.MaySend(name, "otlp-endpoint"); err != nil {
			return err
		}
	}
	if f.OTLP != "" || metrics.TracingWanted() {
		cfg := metrics.TracingConfig{Endpoint: f.OTLP, Ratio: 0.01, Version: kit.Build().Version, Log: s.log}
		switch {
		case f.Ratio != nil:
			cfg.Ratio = *f.Ratio
		case f.OTLP == "" && metrics.SamplerWanted():
			cfg.Ratio = -1
		}
		if f.tracing, err = metrics.NewTracing(ctx, cfg); err != nil {
			return err
		}
	}
	f.counts, err = metrics.New(metrics.Config{
		Version: kit.Build().Version, Resources: f.Resources, Namespaces: f.Namespaces, Log: s.log, Tracing: f.tracing,
	})
	if err != nil {
		return err
	}
	s.closeAtEnd(3*time.Second, "traces", f.tracing.Close)
	s.atEnd(f.counts.Close)
	s.observers = append(s.observers, f.counts.Observer())
	return f.listen(ctx, s)
}

//nolint:unparam // a step of a part may fail
func (f *metricsFlags) start(_ context.Context, s *serving) error {
	f.counts.Watch(s.lim, s.run.Opened)
	return nil
}

// listen opens the address for scrapes at once, if there is one.
func (f *metricsFlags) listen(ctx context.Context, s *serving) error {
	if f.Address == "" {
		return nil
	}
	ln, err := s.listen(ctx, "--metrics", f.Address)
	if err != nil {
		return err
	}
	s.tasks = append(s.tasks, Scrapes(ln, f.Address, f.counts.Handler()))
	return nil
}

// Scrapes returns a task that serves /metrics until its context ends.
func Scrapes(ln net.Listener, address string, metrics http.Handler) func(context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	return aside(ln, OnThisMachine(mux, ln, address), 30*time.Second)
}

// OnThisMachine returns a handler that, on a loopback address, refuses requests that name other hosts; on other
// addresses, the network controls access.
func OnThisMachine(h http.Handler, ln net.Listener, address string) http.Handler {
	if !loopback(ln.Addr()) {
		return h
	}
	host, _, _ := net.SplitHostPort(address)
	return httpapi.OnlyHosts(h, slices.Concat(thisMachine, []string{host}))
}
