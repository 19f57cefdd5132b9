// Package serve has weir serve, one file for each part of a server, weir aggregate and weir envoy.
package serve

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/serve/conns"
	"github.com/weirlimits/weir/internal/serve/decide"
	"github.com/weirlimits/weir/internal/serve/gcpace"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("serve", fields)

// parts are the parts of a server, with their flags, described in fields.txt. A flag's name is its json tag, with
// hyphens.
type parts struct {
	reports
	decide   decideFlags
	backstop backstopFlags
	limit    loadFlags
	tls      TLSFlags
	cell     cellFlags
	config   configFlags
	backup   backupFlags
	envoy    envoyFlags
	http     httpFlags
	probes   probesFlags
	grpc     grpcFlags
	auth     authFlags
}

// reports are the parts that report what a server does.
type reports struct {
	log     LogFlags
	metrics metricsFlags
	notify  notifyFlags
	usage   usageFlags
	pprof   pprofFlags
}

// A part of a server may be a checker, an opener and a starter.
//
// checker is a part that refuses invalid flags before anything is opened.
type checker interface {
	check() error
}

// opener is a part that opens something before the store is opened: if a port is in use, no new store should be left
// behind.
type opener interface {
	open(ctx context.Context, s *serving) error
}

// starter is a part that needs the limiter.
type starter interface {
	start(ctx context.Context, s *serving) error
}

// loadFlags bound the load that the server itself accepts.
type loadFlags struct {
	Connections int `json:"max_connections" range:"1.."`
	Inflight    int `json:"max_inflight" range:"1.."`
	Buckets     int `json:"max_buckets" range:"0.."`
}

// list returns the parts in the order in which they are opened and started.
func (p *parts) list() []any {
	return []any{
		&p.log, &p.decide, &p.backstop, &p.limit, &p.tls, &p.metrics, &p.notify, &p.cell, &p.config, &p.backup,
		&p.usage, &p.pprof, &p.envoy, &p.http, &p.probes, &p.grpc, &p.auth,
	}
}

// flags returns the parts in the order in which help shows their flags, and the title of each.
func (p *parts) flags() (flags []any, titles []string) {
	for _, part := range []struct {
		title string
		flags any
	}{
		{"HTTP and leases", &p.http},
		{"gRPC and Envoy", &p.grpc},
		{"gRPC and Envoy", &p.envoy},
		{"Tokens and TLS", &p.auth},
		{"Tokens and TLS", &p.tls},
		{"Load", &p.limit},
		{"Slow and unreachable stores", &p.decide},
		{"Slow and unreachable stores", &p.backstop},
		{"Changes of limits", &p.config},
		{"Cells", &p.cell},
		{"Metrics, traces and logs", &p.metrics},
		{"Metrics, traces and logs", &p.log},
		{"Metrics, traces and logs", &p.pprof},
		{"Metrics, traces and logs", &p.probes},
		{"Near-limit events", &p.notify},
		{"Usage in Redis", &p.usage},
		{"Copies of a store on disk", &p.backup},
	} {
		flags, titles = append(flags, part.flags), append(titles, part.title)
	}
	return flags, titles
}

// check refuses flags that are invalid on their own or in combination.
func (p *parts) check() error {
	for _, part := range p.list() {
		if c, ok := part.(checker); ok {
			if err := c.check(); err != nil {
				return err
			}
		}
	}
	safe := p.http.Insecure || p.auth.given() && p.tls.Cert != ""
	if err := p.http.checkListen(safe); err != nil {
		return err
	}
	return p.grpc.checkListen(safe)
}

// serving is a server while it is put together and runs.
type serving struct {
	*parts
	run       *kit.Run
	log       *slog.Logger
	observers []*weir.Observer
	lim       *weir.Limiter // set when parts are started
	tasks     []task
	ends      []func()
}

// task runs alongside the others until ctx ends. If one fails, all end.
type task func(ctx context.Context) error

// atEnd calls end when the server has ended. What is opened last ends first.
func (s *serving) atEnd(end func()) { s.ends = append(s.ends, end) }

// end calls the ends, except the first n.
func (s *serving) end(n int) {
	for len(s.ends) > n {
		last := len(s.ends) - 1
		s.ends[last]()
		s.ends = s.ends[:last]
	}
}

// ServeCmd returns weir serve.
func ServeCmd(a *kit.Run) *cobra.Command {
	p := parts{limit: loadFlags{Connections: decide.DefaultConnections, Inflight: decide.DefaultInflight}}
	flags, titles := p.flags()
	return kit.Func(a, kit.Spec{
		Use: "serve", Short: "Serve decisions over HTTP and gRPC",
		Long: `Serves decisions over HTTP and gRPC, and configuration over HTTP, until interrupted. It then
finishes the requests in progress and writes and closes the store. Only one process can open a
store on disk: while the server runs, configure the store over HTTP.

Without --auth, requests are not authenticated, and without --tls-cert tokens travel in clear:
the addresses must then be loopback addresses unless you pass --insecure, behind a proxy that
authenticates or terminates TLS.`,
		Example: `  weir serve --http 127.0.0.1:8080
  weir serve --http :8080 --auth tokens.yaml --tls-cert cert.pem --tls-key key.pem`,
		With: flags, Titles: titles,
	}, func(ctx context.Context, _ *struct{}) error {
		if p.log.Format == "json" && a.Output == "table" {
			p.log.all, a.Output = true, "json"
		}
		if err := p.check(); err != nil {
			return err
		}
		return p.serve(ctx, a)
	})
}

// heapLeast is what the server may allocate between two garbage collections: a batch of 1,000 is about a tenth of it.
const heapLeast = 64 << 20

func (p *parts) serve(ctx context.Context, a *kit.Run) error {
	if os.Getenv("GOGC") == "" {
		gcpace.Least(heapLeast)
	}
	s := &serving{parts: p, run: a, log: p.log.logger(a.Err.W)}
	defer s.end(0)
	for _, part := range p.list() {
		if o, ok := part.(opener); ok {
			if err := o.open(ctx, s); err != nil {
				return err
			}
		}
	}
	a.Decides = true
	a.Config.StoreTimeout = 0 // the limiter's default, because callers wait for the answer
	a.Config.Observer = weir.JoinObservers(s.observers...)
	return a.With(stores.Create, func(lim *weir.Limiter) error {
		s.lim = lim
		defer s.end(len(s.ends)) // before the limiter is closed
		for _, part := range p.list() {
			if st, ok := part.(starter); ok {
				if err := st.start(ctx, s); err != nil {
					return err
				}
			}
		}
		if text := stores.Warning(a.Store); text != "" {
			s.log.Warn("the store may lose its data", slog.String("why", text))
		}
		if err := s.announce(); err != nil {
			return err
		}
		if err := together(ctx, s.tasks); err != nil {
			return err
		}
		if p.log.all {
			s.log.Info("stopped")
		} else {
			a.Err.Println("stopped")
		}
		return nil
	})
}

// announce prints the addresses. Tests and scripts wait for this line.
func (s *serving) announce() error {
	a, address := s.run, s.http.url(s.tls.Cert != "")
	start := map[string]string{"http": address, "store": a.Store.String()}
	if s.grpc.ln != nil {
		start["grpc"] = s.grpc.ln.Addr().String()
	}
	if s.probes.ln != nil {
		start["probes"] = s.probes.ln.Addr().String()
	}
	if s.parts.log.all {
		s.log.Info("serving", slog.String("http", start["http"]), slog.String("grpc", start["grpc"]),
			slog.String("probes", start["probes"]), slog.String("store", start["store"]))
		return nil
	}
	return a.Print(start, func() {
		a.Out.Printf("serving %s ", a.Out.Bold(address))
		if s.grpc.ln != nil {
			a.Out.Printf("and gRPC on %s ", a.Out.Bold(start["grpc"]))
		}
		if s.probes.ln != nil {
			a.Out.Printf("and probes on %s ", a.Out.Bold(start["probes"]))
		}
		a.Out.Printf("from %s\n", a.Store)
	})
}

// together runs tasks until ctx ends or one fails, and returns when all have ended.
func together(ctx context.Context, tasks []task) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		g.Go(func() error { return t(ctx) })
	}
	return g.Wait()
}

// inFlag returns a mistake in a configuration as one in the flag that sets it.
func inFlag(flag string, err error) error {
	if bad, ok := errors.AsType[*weir.ConfigError](err); ok {
		return kit.Usagef("%s %s", flag, bad.Reason)
	}
	return err
}

// listen opens the address of a flag, and closes it at the end.
func (s *serving) listen(ctx context.Context, flag, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with %s", err, flag)
	}
	s.atEnd(func() { _ = ln.Close() })
	return ln, nil
}

// aside returns a task that serves operators over HTTP. An answer may take as long as write; 0 means any time. When the
// task ends, it does not wait for requests in progress.
func aside(ln net.Listener, h http.Handler, write time.Duration) task {
	return func(ctx context.Context) error {
		hs := &http.Server{
			Handler: h, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: write, MaxHeaderBytes: 16 << 10,
			IdleTimeout: 2 * time.Minute,
		}
		ln := conns.Listen(ln, conns.Bounds{Unauthenticated: 128})
		stop := context.AfterFunc(ctx, func() { _ = hs.Close() })
		defer stop()
		if err := hs.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// closeAtEnd calls a function when the server has ended, gives it some time, and logs what is lost if it fails.
func (s *serving) closeAtEnd(within time.Duration, lost string, end func(context.Context) error) {
	s.atEnd(func() {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		if err := end(ctx); err != nil {
			s.log.Warn("not everything was sent", slog.String("lost", lost), slog.Any("error", err))
		}
	})
}
