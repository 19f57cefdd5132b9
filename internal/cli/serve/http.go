package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/answer"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/auth"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/leaseid"
	"github.com/weirlimits/weir/internal/serve/reload"
	"github.com/weirlimits/weir/internal/serve/watch"
)

// httpFlags configure where HTTP is served, and the leases.
type httpFlags struct {
	Address       string        `json:"http" default:"127.0.0.1:8080"`
	Hosts         []string      `json:"allowed_host"`
	Insecure      bool          `json:"insecure"`
	LeaseKey      secret.Text   `json:"lease_key"`
	LeaseTTL      time.Duration `json:"lease_ttl" range:"1s..24h" default:"10m"`
	LegacyHeaders bool          `json:"legacy_headers"`
	Errors        string        `json:"errors" values:"problem,openai" default:"problem"`

	ln  net.Listener
	cfg decide.Config // of gRPC, too
	srv *httpapi.Server
}

func (f *httpFlags) check() error {
	if f.LeaseKey.Given() {
		if _, err := leaseid.Read(f.LeaseKey.Reveal()); err != nil {
			from := "WEIR_SERVE_LEASE_KEY"
			if f.LeaseKey.File != "" {
				from = "--lease-key-file"
			}
			return kit.Usagef("%s: the lease key %w", from, err)
		}
	}
	return nil
}

// signer returns what signs lease ids: with the keys in the file as it is now, or with those of the environment. Nil is
// the store's key.
func (f *httpFlags) signer(log *slog.Logger) (func() *leaseid.Signer, error) {
	read := func() (*leaseid.Signer, error) {
		if err := f.LeaseKey.Load(); err != nil {
			return nil, err
		}
		return leaseid.Read(f.LeaseKey.Reveal())
	}
	failed := func(err error) {
		log.Error("the file with lease keys cannot be used: the previous keys stay in force", slog.Any("error", err))
	}
	var paths []string
	switch {
	case !f.LeaseKey.Given():
		return nil, nil //nolint:nilnil // see above
	case f.LeaseKey.File != "":
		paths = []string{f.LeaseKey.File}
	}
	v, err := reload.Open(read, failed, paths...)
	if err != nil {
		return nil, fmt.Errorf("--lease-key-file: %w", err)
	}
	return v.Get, nil
}

// checkListen refuses an address that others can reach, unless that is safe.
func (f *httpFlags) checkListen(safe bool) error {
	return inFlag("--http", httpapi.CheckListen(f.Address, safe))
}

func (f *httpFlags) open(ctx context.Context, s *serving) (err error) {
	f.ln, err = s.listen(ctx, "--http", f.Address)
	return err
}

func (f *httpFlags) start(_ context.Context, s *serving) (err error) {
	poller := watch.New(s.lim)
	s.atEnd(poller.Close)
	f.cfg = decide.Config{
		Limiter: s.lim, Book: s.auth.book, TLS: s.tls.opened, Watch: poller, Log: s.log, LeaseTTL: f.LeaseTTL,
		MaxConnections: s.limit.Connections, MaxInflight: s.limit.Inflight, MaxBuckets: s.limit.Buckets,
		Held: conns.NewBudget(decide.DefaultHeld), Refusals: &auth.Refusals{Log: s.log},
		LogRequests: s.parts.log.Requests, Ready: s.cell.ready,
	}
	if m := s.metrics.counts; m != nil {
		f.cfg.Refusals.Counted = m.Unauthorized
	}
	if f.cfg.Signer, err = f.signer(s.log); err != nil {
		return err
	}
	f.srv, err = httpapi.New(httpapi.Config{
		Config: f.cfg, LegacyHeaders: f.LegacyHeaders, Errors: f.format(), AllowedHosts: f.allowed(s.auth.given()),
		Metrics: s.metrics.counts, Version: kit.Build().Version,
	})
	if err != nil {
		return err
	}
	s.tasks = append(s.tasks, func(ctx context.Context) error { return f.srv.Serve(ctx, f.ln) })
	return nil
}

// format returns the format of refusals, over HTTP and through Envoy.
func (f *httpFlags) format() answer.Format {
	if f.Errors == "openai" {
		return answer.OpenAI
	}
	return answer.ProblemJSON
}

// thisMachine are the names that always refer to this machine.
var thisMachine = []string{"localhost", "127.0.0.1", "::1"}

// allowed returns the hosts that requests may name; nil means all. Without authentication, they are the names of this
// machine, which stops DNS rebinding: a malicious page's requests carry another host name.
func (f *httpFlags) allowed(authenticated bool) []string {
	if authenticated {
		return kit.Words(f.Hosts)
	}
	host, _, _ := net.SplitHostPort(f.Address)
	hosts := slices.Concat(thisMachine, []string{host}, kit.Words(f.Hosts))
	if loopback(f.ln.Addr()) {
		return hosts
	}
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	addresses, _ := net.InterfaceAddrs() // without them, requests by address are refused
	for _, at := range addresses {
		if ip, ok := at.(*net.IPNet); ok {
			hosts = append(hosts, ip.IP.String())
		}
	}
	return hosts
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
