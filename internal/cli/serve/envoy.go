package serve

import (
	"context"
	"errors"
	"log/slog"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest/strictyaml"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/envoy"
	"github.com/weirlimits/weir/internal/serve/reload"
)

// envoyFlags configure Envoy's rate limit service.
type envoyFlags struct {
	On      bool   `json:"envoy" default:"true"`
	Mapping string `json:"envoy_mapping"`
	Body    string `json:"envoy_body"`

	get     func() *envoy.Mapping
	service *envoy.Service // nil: off
}

func (f *envoyFlags) check() error {
	if !f.On && (f.Mapping != "" || f.Body != "") {
		return kit.Usage(errors.New("--envoy-mapping and --envoy-body need --envoy"))
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
		Limiter: s.lim, Mapping: f.get, Within: s.run.Config.DecideWithin, Body: []byte(f.Body), Log: s.log,
		May: func(ctx context.Context, namespace string) bool {
			return decide.CallerOf(ctx).May(auth.Acquire, namespace)
		},
	})
	s.atEnd(func() { f.service.Close() })
	return err
}
