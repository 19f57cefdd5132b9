package serve

import (
	"context"
	"net"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
)

// probesFlags configure where probes are answered apart from other requests.
type probesFlags struct {
	Address string `json:"probes"`

	ln net.Listener // nil: off
}

func (f *probesFlags) check() error {
	if _, _, err := net.SplitHostPort(f.Address); f.Address != "" && err != nil {
		return kit.Usagef("--probes %q is not HOST:PORT, such as :8082", f.Address)
	}
	return nil
}

func (f *probesFlags) open(ctx context.Context, s *serving) (err error) {
	if f.Address != "" {
		f.ln, err = s.listen(ctx, "--probes", f.Address)
	}
	return err
}

// start comes after HTTP has started.
//
//nolint:unparam // a step of a part may fail
func (f *probesFlags) start(_ context.Context, s *serving) error {
	if f.ln != nil {
		s.tasks = append(s.tasks, aside(f.ln, s.http.srv.Probes(), 10*time.Second))
	}
	return nil
}
