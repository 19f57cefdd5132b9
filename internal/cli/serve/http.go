package serve

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// httpFlags configure where HTTP is served, and the leases.
type httpFlags struct {
	address       string
	hosts         []string
	insecure      bool
	leaseKey      string
	leaseTTL      time.Duration
	legacyHeaders bool

	ln  net.Listener
	cfg decide.Config // of gRPC, too
}

func (f *httpFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "http", "127.0.0.1:8080", "`HOST:PORT` to serve HTTP on; port 0 picks a free port")
	flags.StringSliceVar(&f.hosts, "allowed-host", nil, "`HOST` name that requests may use; repeatable (default "+
		"this machine's names without --auth, all names with it)")
	flags.BoolVar(&f.insecure, "insecure", false, "allow other machines to connect without authentication")
	flags.StringVar(&f.leaseKey, "lease-key", "",
		"`SECRET` that signs lease ids; preferably set WEIR_SERVE_LEASE_KEY instead (default a key kept in the store)")
	flags.DurationVar(&f.leaseTTL, "lease-ttl", 10*time.Minute,
		"`DURATION` for which a lease can be adjusted or rolled back")
	flags.BoolVar(&f.legacyHeaders, "legacy-headers", false, "also send X-RateLimit headers")
}

func (f *httpFlags) check() error {
	switch {
	case f.leaseKey != "" && len(f.leaseKey) < leaseid.MinKey:
		return kit.Usagef("--lease-key has %d bytes, at least %d are needed", len(f.leaseKey), leaseid.MinKey)
	case f.leaseTTL < time.Second || f.leaseTTL > 24*time.Hour:
		return kit.Usagef("--lease-ttl %s must be between 1s and 24h", f.leaseTTL)
	}
	return nil
}

// checkListen refuses an address that others can reach, unless that is safe.
func (f *httpFlags) checkListen(safe bool) error { return httpapi.CheckListen(f.address, safe) }

func (f *httpFlags) open(ctx context.Context, s *serving) (err error) {
	if f.ln, err = s.listen(ctx, f.address); err != nil {
		return fmt.Errorf("%w: choose another address with --http", err)
	}
	return nil
}

func (f *httpFlags) start(_ context.Context, s *serving) error {
	poller := watch.New(s.lim, 0)
	s.atEnd(poller.Close)
	f.cfg = decide.Config{
		Limiter: s.lim, Book: s.auth.book, TLS: s.tls.opened, Watch: poller, Log: s.log, LeaseTTL: f.leaseTTL,
		MaxConnections: s.limit.connections, MaxInflight: s.limit.inflight,
	}
	if f.leaseKey != "" {
		f.cfg.LeaseKey = []byte(f.leaseKey)
	}
	srv, err := httpapi.New(httpapi.Config{
		Config: f.cfg, LegacyHeaders: f.legacyHeaders, AllowedHosts: f.allowed(s.auth.given()),
		Metrics:     s.metrics.counts,
		LogRequests: s.parts.log.requests, Version: kit.Build().Version,
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
		return f.hosts
	}
	host, _, _ := net.SplitHostPort(f.address)
	return slices.Concat(thisMachine, []string{host}, f.hosts)
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
