package serve

import (
	"context"
	"net/http"
	"net/http/pprof"

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
	ln, err := s.listen(ctx, "--pprof", f.Address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	s.tasks = append(s.tasks, aside(ln, httpapi.OnlyHosts(mux, thisMachine), 0))
	return nil
}
