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

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
)

// metricsFlags configure metrics and traces, and where they are served or sent.
type metricsFlags struct {
	address    string
	resources  int
	namespaces int
	otlp       string
	ratio      float64

	flags   *pflag.FlagSet
	tracing *metrics.Tracing
	counts  *metrics.Metrics
}

func (f *metricsFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "metrics", "",
		"also serve /metrics on `HOST:PORT`, without a token; the main address requires one with --auth")
	flags.IntVar(&f.resources, "metrics-resources", 100,
		"maximum `N` resources and N limit names with metrics of their own; the rest is counted as other")
	flags.IntVar(&f.namespaces, "metrics-namespaces", 0,
		"maximum `N` namespaces with metrics of their own; 0 means no namespace label")
	flags.StringVar(&f.otlp, "otlp-endpoint", "", "`URL` to send traces to with OTLP over HTTP, such as "+
		"http://127.0.0.1:4318; or set OTEL_EXPORTER_OTLP_ENDPOINT")
	flags.Float64Var(&f.ratio, "trace-ratio", 0.01,
		"`SHARE` of requests to trace, between 0 and 1, if their traceparent does not decide")
	f.flags = flags
}

func (f *metricsFlags) check() error {
	if f.address != "" {
		if _, _, err := net.SplitHostPort(f.address); err != nil {
			return kit.Usagef("--metrics %q is not HOST:PORT, such as 127.0.0.1:9090", f.address)
		}
	}
	switch u, err := url.Parse(f.otlp); {
	case f.resources < 1 || f.resources > 10_000:
		return kit.Usage(errors.New("--metrics-resources must be between 1 and 10000"))
	case f.namespaces < 0 || f.namespaces > 100:
		return kit.Usage(errors.New("--metrics-namespaces must be between 0 and 100"))
	case !(f.ratio >= 0 && f.ratio <= 1):
		return kit.Usage(errors.New("--trace-ratio must be between 0 and 1"))
	case f.otlp != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"):
		return kit.Usagef("--otlp-endpoint %q is not a URL such as http://127.0.0.1:4318", f.otlp)
	}
	return nil
}

// open starts measuring, and opens the address for scrapes.
func (f *metricsFlags) open(ctx context.Context, s *serving) (err error) {
	if f.otlp != "" || metrics.TracingWanted() {
		cfg := metrics.TracingConfig{Endpoint: f.otlp, Ratio: f.ratio, Version: kit.Build().Version, Log: s.log}
		if f.otlp == "" && !f.flags.Changed("trace-ratio") && metrics.SamplerWanted() {
			cfg.Ratio = -1
		}
		if f.tracing, err = metrics.NewTracing(ctx, cfg); err != nil {
			return err
		}
	}
	f.counts, err = metrics.New(metrics.Config{
		Version: kit.Build().Version, Resources: f.resources, Namespaces: f.namespaces, Log: s.log, Tracing: f.tracing,
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
	if f.address == "" {
		return nil, nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --metrics", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	var h http.Handler = mux
	if loopback(ln.Addr()) { // on other addresses, the network controls access
		host, _, _ := net.SplitHostPort(f.address)
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
