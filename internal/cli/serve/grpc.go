package serve

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/metrics"
)

// grpcFlags configure where gRPC is served.
type grpcFlags struct{ address string }

func (f *grpcFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "grpc", "127.0.0.1:8081", "`HOST:PORT` to serve gRPC on; port 0 picks a free port; off turns gRPC off")
}

func (f *grpcFlags) check() error { return nil }

func (f *grpcFlags) off() bool { return f.address == "" || f.address == "off" }

// checkListen refuses the same addresses as for HTTP.
func (f *grpcFlags) checkListen(safe bool) error {
	if f.off() {
		return nil
	}
	err := httpapi.CheckListen(f.address, safe)
	var bad *weir.ConfigError
	if errors.As(err, &bad) {
		bad.Field = "grpc address"
	}
	return err
}

// listen opens the address at once. It returns nil if gRPC is off.
func (f *grpcFlags) listen(ctx context.Context) (net.Listener, error) {
	if f.off() {
		return nil, nil //nolint:nilnil // nil is no listener
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --grpc, or --grpc off", err)
	}
	return ln, nil
}

// part returns the part that serves gRPC, configured like HTTP, with services beside the native one.
func (f *grpcFlags) part(ln net.Listener, cfg decide.Config, measured *metrics.Metrics, services ...func(grpc.ServiceRegistrar)) (part, error) {
	srv, err := grpcapi.New(grpcapi.Config{Config: cfg, Services: services, Unary: measured.Unary, Stream: measured.Stream})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return srv.Serve(ctx, ln) }, nil
}
