package cli

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/leaseid"
	"github.com/weirlimits/weir/internal/server"
)

// httpFlags say where HTTP is served, and how leases are.
type httpFlags struct {
	address       string
	hosts         []string
	insecure      bool
	leaseKey      string
	leaseTTL      time.Duration
	legacyHeaders bool
}

func (f *httpFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "http", "127.0.0.1:8080", "`HOST:PORT` to listen on; port 0 takes a free one")
	flags.StringSliceVar(&f.hosts, "allowed-host", nil, "`HOST` that requests may name; without --auth this machine's names are allowed, with it all")
	flags.BoolVar(&f.insecure, "insecure", false, "listen beyond this machine although nobody is authenticated")
	flags.StringVar(&f.leaseKey, "lease-key", "", "`SECRET` that signs lease ids, better set in WEIR_SERVE_LEASE_KEY; not set: the store's")
	flags.DurationVar(&f.leaseTTL, "lease-ttl", 10*time.Minute, "`DURATION` for which a lease can be adjusted and rolled back")
	flags.BoolVar(&f.legacyHeaders, "legacy-headers", false, "send X-RateLimit headers too")
}

func (f *httpFlags) check() error {
	switch {
	case f.leaseKey != "" && len(f.leaseKey) < leaseid.MinKey:
		return usageError{fmt.Errorf("--lease-key has %d bytes, at least %d are needed", len(f.leaseKey), leaseid.MinKey)}
	case f.leaseTTL < time.Second || f.leaseTTL > 24*time.Hour:
		return usageError{fmt.Errorf("--lease-ttl %s must be between 1s and 24h", f.leaseTTL)}
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

// thisMachine are the names under which everybody reaches it.
var thisMachine = []string{"localhost", "127.0.0.1", "::1"}

// apply sets the topic's part of a server's configuration. Where nobody is authenticated, only names of this machine
// are answered to: a page whose host name was made to lead here has another.
func (f *httpFlags) apply(cfg *server.Config, at net.Addr, authenticated bool) {
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

// loopback reports whether an address can only be reached from this machine.
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
