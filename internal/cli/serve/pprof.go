package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/httpapi"
)

// pprofFlags configure where profiles are served. Profiles reveal memory contents, so they are never served to other
// machines.
type pprofFlags struct {
	Address string `json:"pprof"`
}

func (f *pprofFlags) check() error {
	if f.Address == "" {
		return nil
	}
	if err := httpapi.CheckListen(f.Address, false); err != nil {
		return kit.Usagef("--pprof %q must be a loopback HOST:PORT of this machine, such as 127.0.0.1:6060", f.Address)
	}
	return nil
}

func (f *pprofFlags) open(ctx context.Context, s *serving) error {
	if f.Address == "" {
		return nil
	}
	ln, err := s.listen(ctx, f.Address)
	if err != nil {
		return fmt.Errorf("%w: choose another address with --pprof", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s.tasks = append(s.tasks, func(ctx context.Context) error {
		hs := &http.Server{Handler: httpapi.OnlyHosts(mux, thisMachine), ReadHeaderTimeout: 10 * time.Second}
		stop := context.AfterFunc(ctx, func() { _ = hs.Close() }) // do not wait for a profile in progress
		defer stop()
		if err := hs.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}
