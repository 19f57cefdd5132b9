package serve

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// httpFlags configure where HTTP is served, and the leases.
type httpFlags struct {
	Address       string        `json:"http" default:"127.0.0.1:8080"`
	Hosts         []string      `json:"allowed_host"`
	Insecure      bool          `json:"insecure"`
	LeaseKey      string        `json:"lease_key"`
	LeaseTTL      time.Duration `json:"lease_ttl" range:"1s..24h" default:"10m"`
	LegacyHeaders bool          `json:"legacy_headers"`

	ln  net.Listener
	cfg decide.Config // of gRPC, too
}

func (f *httpFlags) check() error {
	if f.LeaseKey != "" && len(f.LeaseKey) < leaseid.MinKey {
		return kit.Usagef("--lease-key has %d bytes, at least %d are needed", len(f.LeaseKey), leaseid.MinKey)
	}
	return nil
}

// checkListen refuses an address that others can reach, unless that is safe.
func (f *httpFlags) checkListen(safe bool) error { return httpapi.CheckListen(f.Address, safe) }

func (f *httpFlags) open(ctx context.Context, s *serving) (err error) {
	f.ln, err = s.listen(ctx, "--http", f.Address)
	return err
}

func (f *httpFlags) start(_ context.Context, s *serving) error {
	poller := watch.New(s.lim, 0)
	s.atEnd(poller.Close)
	f.cfg = decide.Config{
		Limiter: s.lim, Book: s.auth.book, TLS: s.tls.opened, Watch: poller, Log: s.log, LeaseTTL: f.LeaseTTL,
		MaxConnections: s.limit.Connections, MaxInflight: s.limit.Inflight,
	}
	if f.LeaseKey != "" {
		f.cfg.LeaseKey = []byte(f.LeaseKey)
	}
	srv, err := httpapi.New(httpapi.Config{
		Config: f.cfg, LegacyHeaders: f.LegacyHeaders, AllowedHosts: f.allowed(s.auth.given()),
		Metrics:     s.metrics.counts,
		LogRequests: s.parts.log.Requests, Version: kit.Build().Version,
	})
	if err != nil {
		return err
	}
	s.tasks = append(s.tasks, func(ctx context.Context) error { return srv.Serve(ctx, f.ln) })
	return nil
}

// thisMachine are the names that always refer to this machine.
var thisMachine = []string{"localhost", "127.0.0.1", "::1"}

// allowed returns the hosts that requests may name; nil means all. Without authentication, they are the names of this
// machine, which stops DNS rebinding: a malicious page's requests carry another host name.
func (f *httpFlags) allowed(authenticated bool) []string {
	if authenticated || !loopback(f.ln.Addr()) {
		return kit.Words(f.Hosts)
	}
	host, _, _ := net.SplitHostPort(f.Address)
	return slices.Concat(thisMachine, []string{host}, kit.Words(f.Hosts))
}

// loopback reports whether an address can be reached only from this machine.
func loopback(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (f *httpFlags) url(secure bool) string {
	if secure {
		return "https://" + f.ln.Addr().String()
	}
	return "http://" + f.ln.Addr().String()
}
