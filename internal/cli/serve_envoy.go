package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/auth"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/reload"
	"github.com/weirlimits/weir/internal/rls"
)

// envoyFlags say how Envoy's rate limit service is served.
type envoyFlags struct {
	on      bool
	mapping string
	body    string
}

func (f *envoyFlags) bind(flags *pflag.FlagSet) {
	flags.BoolVar(&f.on, "envoy", true, "serve Envoy's rate limit service, too, where gRPC is served")
	flags.StringVar(&f.mapping, "envoy-mapping", "", "`FILE` that says what Envoy's domains and descriptors stand for; not set: the built-in rule")
	flags.StringVar(&f.body, "envoy-body", "", "`TEXT` that a client gets whom Envoy refuses")
}

func (f *envoyFlags) check() error {
	if !f.on && (f.mapping != "" || f.body != "") {
		return usageError{errors.New("--envoy-mapping and --envoy-body go with --envoy")}
	}
	return nil
}

// open reads the mapping, and follows its file from then on: one that is bad later leaves it as it was.
func (f *envoyFlags) open(log *slog.Logger) (func() *rls.Mapping, error) {
	if !f.on || f.mapping == "" {
		return func() *rls.Mapping { return nil }, nil
	}
	v, err := reload.Open(
		func() (*rls.Mapping, error) { return readMapping(f.mapping) },
		func(err error) {
			log.Error("the mapping of Envoy's descriptors stays as it was", slog.String("file", f.mapping), slog.Any("error", err))
		},
		f.mapping,
	)
	if err != nil {
		return nil, err
	}
	return v.Get, nil
}

func readMapping(path string) (*rls.Mapping, error) {
	src, err := manifest.Open([]string{path}, nil)
	if err != nil {
		return nil, err
	}
	if len(src) != 1 {
		return nil, usageError{fmt.Errorf("%s is a folder: a mapping is one file", path)}
	}
	m, err := rls.ReadMapping(src[0])
	return m, err
}

// service returns what answers Envoy, nil if it is off.
func (f *envoyFlags) service(lim *weir.Limiter, mapping func() *rls.Mapping, within time.Duration, log *slog.Logger) (*rls.Service, error) {
	if !f.on {
		return nil, nil //nolint:nilnil // a nil service is none
	}
	return rls.New(rls.Config{
		Limiter: lim, Mapping: mapping, Within: within, Body: []byte(f.body), Log: log,
		May: func(ctx context.Context, namespace string) bool { return auth.From(ctx).May(auth.Acquire, namespace) },
	})
}
