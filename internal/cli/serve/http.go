package serve

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/serve/httpapi"
	"github.com/weirlimits/weir/internal/serve/leaseid"
)

// httpFlags configure where HTTP is served, and the leases.
type httpFlags struct {
	address       string
	hosts         []string
	insecure      bool
	leaseKey      string
	leaseTTL      time.Duration
	legacyHeaders bool
}

func (f *httpFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "http", "127.0.0.1:8080", "`HOST:PORT` to serve HTTP on; port 0 picks a free port")
	flags.StringSliceVar(&f.hosts, "allowed-host", nil, "`HOST` name that requests may use; repeatable (default this machine's names without --auth, all names with it)")
	flags.BoolVar(&f.insecure, "insecure", false, "allow other machines to connect without authentication")
	flags.StringVar(&f.leaseKey, "lease-key", "", "`SECRET` that signs lease ids; preferably set WEIR_SERVE_LEASE_KEY instead (default a key kept in the store)")
	flags.DurationVar(&f.leaseTTL, "lease-ttl", 10*time.Minute, "`DURATION` for which a lease can be adjusted or rolled back")
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

func (f *httpFlags) listen(ctx context.Context) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with --http", err)
	}
	return ln, nil
}

// thisMachine are the names that always refer to this machine.
var thisMachine = []string{"localhost", "127.0.0.1", "::1"}

// apply sets the topic's part of a server's configuration. Without authentication, the server answers only requests for
// names of this machine, which stops DNS rebinding: a malicious page's requests carry another host name.
func (f *httpFlags) apply(cfg *httpapi.Config, at net.Addr, authenticated bool) {
	cfg.LeaseTTL, cfg.LegacyHeaders = f.leaseTTL, f.legacyHeaders
	if f.leaseKey != "" {
		cfg.LeaseKey = []byte(f.leaseKey)
	}
	cfg.AllowedHosts = f.hosts
	if !authenticated && loopback(at) {
		host, _, _ := net.SplitHostPort(f.address)
		cfg.AllowedHosts = slices.Concat(thisMachine, []string{host}, f.hosts)
	}
}

// loopback reports whether an address can be reached only from this machine.
func loopback(at net.Addr) bool {
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (f *httpFlags) url(at net.Addr, secure bool) string {
	if secure {
		return "https://" + at.String()
	}
	return "http://" + at.String()
}
