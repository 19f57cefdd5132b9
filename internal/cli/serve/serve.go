// Package serve has weir serve, one file for each topic of its flags, and weir envoy.
package serve

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/httpapi"

	live "github.com/weirlimits/weir/internal/serve/watch"
	"github.com/weirlimits/weir/store"
)

// serveFlags are the flags of serve, grouped by topic. Each topic is in serve_TOPIC.go.
type serveFlags struct {
	http  httpFlags
	grpc  grpcFlags
	auth  authFlags
	tls   tlsFlags
	limit limitFlags
	envoy envoyFlags
	pprof pprofFlags

	decide   decideFlags
	cell     cellFlags
	backstop backstopFlags
	config   configFlags

	metrics metricsFlags
	log     logFlags
	notify  notifyFlags
}

// topic is a part of serve's flags.
type topic interface {
	bind(flags *pflag.FlagSet)
	check() error // refuses invalid flags before anything is opened
}

func (f *serveFlags) topics() []topic {
	return []topic{&f.http, &f.grpc, &f.auth, &f.tls, &f.limit, &f.decide, &f.cell, &f.backstop, &f.config, &f.envoy, &f.pprof, &f.metrics, &f.log, &f.notify}
}

// check refuses flags that are invalid on their own or in combination.
func (f *serveFlags) check() error {
	for _, t := range f.topics() {
		if err := t.check(); err != nil {
			return err
		}
	}
	safe := f.auth.given() || f.http.insecure
	if err := httpapi.CheckListen(f.http.address, safe); err != nil {
		return err
	}
	return f.grpc.checkListen(safe)
}

// part is a task that serve runs alongside the others until ctx ends. If one part fails, all end.
type part func(ctx context.Context) error

func ServeCmd(a *kit.Run) *cobra.Command {
	var flags serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve decisions over HTTP and gRPC",
		Long: `Serves decisions over HTTP and gRPC, and configuration over HTTP, until interrupted. It then
finishes the requests in progress and writes and closes the store. Only one process can open a
store on disk: while the server runs, configure the store over HTTP.

Without --auth, requests are not authenticated, and the addresses must be loopback addresses
unless you pass --insecure.`,
		Example: `  weir serve --http 127.0.0.1:8080
  weir serve --http :8080 --auth tokens.yaml --tls-cert cert.pem --tls-key key.pem`,
		Args: kit.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return serve(cmd.Context(), a, &flags)
		},
	}
	for _, t := range flags.topics() {
		t.bind(cmd.Flags())
	}
	return cmd
}

func serve(ctx context.Context, a *kit.Run, flags *serveFlags) error {
	log := flags.log.logger(a.Err.W)
	book, err := flags.auth.open(log)
	if err != nil {
		return err
	}
	secure, err := flags.tls.config(log)
	if err != nil {
		return err
	}
	// Listen before opening the store: if a port is in use, no new store should be left behind.
	ln, err := flags.http.listen(ctx)
	if err != nil {
		return err
	}
	defer ln.Close()
	rpcs, err := flags.grpc.listen(ctx)
	if err != nil {
		return err
	}
	if rpcs != nil {
		defer rpcs.Close()
	}
	profiles, err := flags.pprof.listen(ctx)
	if err != nil {
		return err
	}
	mapping, err := flags.envoy.open(log)
	if err != nil {
		return err
	}
	measured, err := flags.metrics.open(ctx, log)
	if err != nil {
		return err
	}
	defer flags.metrics.close(measured, log)
	scrapes, err := flags.metrics.listen(ctx, measured)
	if err != nil {
		return err
	}
	hook, err := flags.notify.open(log)
	if err != nil {
		return err
	}
	defer flags.notify.close(hook, log)
	flags.config.open(a.Store, log)
	a.Config.LastGood, a.Late = flags.config.lastGood(), flags.config.late(a.Store, flags.http.leaseKey != "", log)
	a.Config.Observer = weir.JoinObservers(measured.Observer(), flags.notify.observer(hook, log), flags.cell.observer(), flags.config.observer(log))
	if book != nil && secure == nil {
		warnClear(log, ln, rpcs)
	}

	a.Config.StoreTimeout = 0 // the limiter's default, because callers wait for the answer
	a.Config.DecideWithin = flags.decide.on(a.Store)
	a.Config.OnUnavailable, a.Config.Instances = weir.Unavailable(flags.backstop.onUnavailable), flags.backstop.count
	if flags.cell.name != "" {
		defer flags.cell.close(log)
		a.Shares = func(st store.Store) (weir.Shares, error) { return flags.cell.shares(st, log) }
	}
	return a.With(stores.Create, func(lim *weir.Limiter) error {
		measured.Watch(lim, a.Opened)
		if err := flags.cell.start(ctx, lim, measured); err != nil {
			return err
		}
		defer flags.cell.close(log)
		flowing, done, err := flags.config.parts(ctx, lim, a.Opened, measured, log)
		if err != nil {
			return err
		}
		defer done()
		poller := live.New(lim, 0)
		defer poller.Close()
		cfg := httpapi.Config{
			Config:  decide.Config{Limiter: lim, Book: book, TLS: secure, Watch: poller, Log: log},
			Metrics: measured, LogRequests: flags.log.requests, Version: kit.Build().Version,
		}
		flags.http.apply(&cfg, ln.Addr(), book != nil)
		flags.limit.apply(&cfg.Config)
		srv, err := httpapi.New(cfg)
		if err != nil {
			return err
		}
		parts := []part{func(ctx context.Context) error { return srv.Serve(ctx, ln) }}
		if rpcs != nil {
			envoy, err := flags.envoy.service(lim, mapping, a.Config.DecideWithin, log)
			if err != nil {
				return err
			}
			defer envoy.Close()
			part, err := flags.grpc.part(rpcs, cfg.Config, measured, envoy.Register)
			if err != nil {
				return err
			}
			parts = append(parts, part)
		}
		parts = append(parts, flowing...)
		if profiles != nil {
			parts = append(parts, profiles)
		}
		if count := flags.backstop.part(a.Store, a.Opened, log); count != nil {
			parts = append(parts, count)
		}
		if scrapes != nil {
			parts = append(parts, scrapes)
		}

		address := flags.http.url(ln.Addr(), secure != nil)
		start := map[string]string{"http": address, "store": a.Store}
		if rpcs != nil {
			start["grpc"] = rpcs.Addr().String()
		}
		err = a.Print(start, func() {
			a.Out.Printf("serving %s ", a.Out.Bold(address))
			if rpcs != nil {
				a.Out.Printf("and gRPC on %s ", a.Out.Bold(start["grpc"]))
			}
			a.Out.Printf("from %s\n", a.Store)
		})
		if err != nil {
			return err
		}
		if err := together(ctx, parts); err != nil {
			return err
		}
		a.Err.Println("stopped")
		return nil
	})
}

// together runs parts until ctx ends or one fails, and returns when all have ended.
func together(ctx context.Context, parts []part) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range parts {
		g.Go(func() error { return p(ctx) })
	}
	return g.Wait()
}
