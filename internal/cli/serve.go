package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/server"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	http          string
	leaseKey      string
	leaseTTL      time.Duration
	insecure      bool
	legacyHeaders bool
}

func (a *app) serveCmd() *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve decisions over HTTP",
		Long: `Serves decisions and configuration over HTTP until it is interrupted; then requests under
way finish, and the store is written and closed. A store on disk belongs to one process:
while this one runs, configure it over HTTP.`,
		Example: "  weir serve --http 127.0.0.1:8080",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.serve(cmd.Context(), flags)
		},
	}
	cmd.Flags().StringVar(&flags.http, "http", "127.0.0.1:8080", "`HOST:PORT` to listen on; port 0 takes a free one")
	cmd.Flags().StringVar(&flags.leaseKey, "lease-key", "", "`SECRET` that signs lease ids, better set in WEIR_SERVE_LEASE_KEY; not set: the store's")
	cmd.Flags().DurationVar(&flags.leaseTTL, "lease-ttl", 10*time.Minute, "`DURATION` for which a lease can be adjusted and rolled back")
	cmd.Flags().BoolVar(&flags.insecure, "insecure", false, "listen beyond this machine although nobody is authenticated")
	cmd.Flags().BoolVar(&flags.legacyHeaders, "legacy-headers", false, "send X-RateLimit headers too")
	return cmd
}

// check refuses what the server would refuse, before a store is made for it.
func (f *serveFlags) check() error {
	switch {
	case f.leaseKey != "" && len(f.leaseKey) < minLeaseKey:
		return usageError{fmt.Errorf("--lease-key has %d bytes, at least %d are needed", len(f.leaseKey), minLeaseKey)}
	case f.leaseTTL < time.Second || f.leaseTTL > 24*time.Hour:
		return usageError{fmt.Errorf("--lease-ttl %s must be between 1s and 24h", f.leaseTTL)}
	}
	return server.CheckListen(f.http, f.insecure)
}

const minLeaseKey = 16

func (a *app) serve(ctx context.Context, flags serveFlags) error {
	// The address first: a port in use should not leave a new store behind.
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", flags.http)
	if err != nil {
		return fmt.Errorf("%w: choose another address with --http", err)
	}
	defer ln.Close()
	a.timeout = 0 // the limiter's default: others wait for the answer
	return a.with(create, func(lim *weir.Limiter) error {
		cfg := server.Config{
			Limiter:       lim,
			LeaseTTL:      flags.leaseTTL,
			LegacyHeaders: flags.legacyHeaders,
			Log:           slog.New(slog.NewTextHandler(a.err.W, nil)),
			Version:       build().Version,
		}
		if flags.leaseKey != "" {
			cfg.LeaseKey = []byte(flags.leaseKey)
		}
		srv, err := server.New(cfg)
		if err != nil {
			return err
		}
		address := "http://" + ln.Addr().String()
		err = a.print(map[string]string{"http": address, "store": a.store}, func() {
			a.out.Printf("serving %s from %s\n", a.out.Bold(address), a.store)
		})
		if err != nil {
			return err
		}
		if err := srv.Serve(ctx, ln); err != nil {
			return err
		}
		a.err.Println("stopped")
		return nil
	})
}
