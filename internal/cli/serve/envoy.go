package serve

import (
	"context"
	"errors"
	"log/slog"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	limiter "github.com/weirlimits/weir/internal/parts"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
	"github.com/weirlimits/weir/internal/serve/reload"
)

// envoyFlags configure Envoy's rate limit service.
type envoyFlags struct {
	On      bool   `json:"envoy" default:"true"`
	Mapping string `json:"envoy_mapping"`
	Body    string `json:"envoy_body"`
	Unknown string `json:"rls_unknown" values:"allow,deny" default:"allow"`

	get     func() *envoy.Mapping
	service *envoy.Service // nil: off
}

func (f *envoyFlags) check() error {
	if !f.On && (f.Mapping != "" || f.Body != "" || f.Unknown == "deny") {
		return kit.Usage(errors.New("--envoy-mapping, --envoy-body and --rls-unknown need --envoy"))
	}
	return nil
}

// open reads the mapping and then follows its file. If the file becomes invalid, the last valid mapping stays in use.
func (f *envoyFlags) open(_ context.Context, s *serving) error {
	f.get = func() *envoy.Mapping { return nil }
	if !f.On || f.Mapping == "" {
		return nil
	}
	v, err := reload.Open(
		func() (*envoy.Mapping, error) { return readMapping(f.Mapping) },
		func(err error) {
			s.log.Error("the new mapping of Envoy's descriptors is invalid: the old one stays in use",
				slog.String("file", f.Mapping), slog.Any("error", err))
		},
		f.Mapping,
	)
	if err != nil {
		return err
	}
	f.get = v.Get
	return nil
}

func readMapping(path string) (*envoy.Mapping, error) {
	src, err := strictyaml.Open([]string{path}, nil)
	if err != nil {
		return nil, err
	}
	if len(src) != 1 {
		return nil, kit.Usagef("%s is a folder: a mapping is a single file", path)
	}
	m, err := envoy.ReadMapping(src[0])
	return m, err
}

// start makes the service, which grpcFlags serves.
func (f *envoyFlags) start(_ context.Context, s *serving) (err error) {
	if !f.On || s.grpc.ln == nil {
		return nil
	}
	f.service, err = envoy.New(envoy.Config{
		Limiter: s.lim, Mapping: f.get, Within: limiter.Of(s.lim).Within.Get(), Body: []byte(f.Body),
		Errors: s.http.format(),
		Log:    s.log, DenyUnknown: f.Unknown == "deny",
		May: func(ctx context.Context, a auth.Access) bool { return decide.CallerOf(ctx).May(a) },
		Refused: func(ctx context.Context, a auth.Access) {
			c, method := decide.CallerOf(ctx), slog.String("method", "ShouldRateLimit")
			s.http.cfg.Refusals.Add(ctx, c.Lacks(a), grpcapi.From(ctx), c.Principal, method)
		},
	})
	if err != nil {
		return err
	}
	s.atEnd(func() { f.service.Close() })
	s.metrics.counts.Register(func(to *metrics.Scrape) { reportEnvoy(to, f.service) })
	return nil
}

// reportEnvoy adds the metrics of Envoy's rate limit service to a scrape.
func reportEnvoy(s *metrics.Scrape, service *envoy.Service) {
	for reason, n := range service.Unknown() {
		s.Counter("weir_envoy_unknown_total", "Descriptors of Envoy that could not be limited, by the reason.",
			metrics.Value(n, "reason", reason))
	}
}
