package serve

import (
	"context"
	"net"

	"google.golang.org/grpc"

	"github.com/weirlimits/weir/internal/serve/grpcapi"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// grpcFlags configure where gRPC is served.
type grpcFlags struct {
	Address string `json:"grpc" default:"127.0.0.1:8081"`

	ln net.Listener // nil: off
}

func (f *grpcFlags) off() bool { return f.Address == "" || f.Address == "off" }

// checkListen refuses the same addresses as for HTTP.
func (f *grpcFlags) checkListen(safe bool) error {
	if f.off() {
		return nil
	}
	return inFlag("--grpc", httpapi.CheckListen(f.Address, safe))
}

func (f *grpcFlags) open(ctx context.Context, s *serving) (err error) {
	if f.off() {
		return nil
	}
	f.ln, err = s.listen(ctx, "--grpc, or --grpc off", f.Address)
	return err
}

// start serves gRPC, configured like HTTP.
func (f *grpcFlags) start(_ context.Context, s *serving) error {
	if f.ln == nil {
		return nil
	}
	srv, err := grpcapi.New(grpcapi.Config{
		Config: s.http.cfg, Services: []func(grpc.ServiceRegistrar){s.envoy.service.Register},
		Unary: s.metrics.counts.Unary, Stream: s.metrics.counts.Stream,
	})
	if err != nil {
		return err
	}
	s.tasks = append(s.tasks, func(ctx context.Context) error { return srv.Serve(ctx, f.ln) })
	return nil
}
