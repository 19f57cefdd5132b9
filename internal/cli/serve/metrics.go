package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

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
		return kit.Usagef("--otlp-endpoint %q is not a URL such as http://127.0.0.1:4318", f.OTLP)
	}
	return nil
}

// open starts measuring, and opens the address for scrapes.
func (f *metricsFlags) open(ctx context.Context, s *serving) (err error) {
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
	s.atEnd(func() { f.close(s.log) })
	s.observers = append(s.observers, f.counts.Observer())
	scrapes, err := f.listen(ctx, f.counts)
	if scrapes != nil {
		s.tasks = append(s.tasks, scrapes)
	}
	return err
}

//nolint:unparam // a step of a part may fail
func (f *metricsFlags) start(_ context.Context, s *serving) error {
	f.counts.Watch(s.lim, s.run.Opened)
	return nil
}

// close sends the remaining spans, unless that takes too long.
func (f *metricsFlags) close(log *slog.Logger) {
	f.counts.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := f.tracing.Close(ctx); err != nil {
		log.Warn("traces were lost", slog.Any("error", err))
	}
}

// listen opens the address for scrapes at once. It returns nil if there is none.
func (f *metricsFlags) listen(ctx context.Context, m *metrics.Metrics) (task, error) {
	if f.Address == "" {
		return nil, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.Address)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --metrics", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	var h http.Handler = mux
	if loopback(ln.Addr()) { // on other addresses, the network controls access
		host, _, _ := net.SplitHostPort(f.Address)
		h = httpapi.OnlyHosts(mux, slices.Concat(thisMachine, []string{host}))
	}
	return func(ctx context.Context) error {
		hs := &http.Server{
			Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
			MaxHeaderBytes: 16 << 10,
		}
		stop := context.AfterFunc(ctx, func() { _ = hs.Close() })
		defer stop()
		if err := hs.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}
