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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/serve/decide"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("serve", fields)

// parts are the parts of a server, with their flags, described in fields.txt. A flag's name is its json tag, with
// hyphens.
type parts struct {
	log      logFlags
	decide   decideFlags
	backstop backstopFlags
	limit    loadFlags
	tls      tlsFlags
	metrics  metricsFlags
	notify   notifyFlags
	cell     cellFlags
	config   configFlags
	pprof    pprofFlags
	envoy    envoyFlags
	http     httpFlags
	grpc     grpcFlags
	auth     authFlags
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
}

// list returns the parts in the order in which they are opened and started.
func (p *parts) list() []any {
	return []any{
		&p.log, &p.decide, &p.backstop, &p.limit, &p.tls, &p.metrics, &p.notify, &p.cell, &p.config, &p.pprof, &p.envoy,
		&p.http, &p.grpc, &p.auth,
	}
}

// flags returns the parts in the order in which help shows their flags.
func (p *parts) flags() []any {
	return []any{
		&p.http, &p.grpc, &p.auth, &p.tls, &p.limit, &p.decide, &p.backstop, &p.envoy, &p.config, &p.cell, &p.metrics,
		&p.notify, &p.log, &p.pprof,
	}
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
	safe := p.auth.given() || p.http.Insecure
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
	p := parts{limit: loadFlags{decide.DefaultConnections, decide.DefaultInflight}}
	return kit.Func(a, kit.Spec{
		Use: "serve", Short: "Serve decisions over HTTP and gRPC",
		Long: `Serves decisions over HTTP and gRPC, and configuration over HTTP, until interrupted. It then
finishes the requests in progress and writes and closes the store. Only one process can open a
store on disk: while the server runs, configure the store over HTTP.

Without --auth, requests are not authenticated, and the addresses must be loopback addresses
unless you pass --insecure.`,
		Example: `  weir serve --http 127.0.0.1:8080
  weir serve --http :8080 --auth tokens.yaml --tls-cert cert.pem --tls-key key.pem`,
		With: p.flags(),
	}, func(ctx context.Context, _ *struct{}) error {
		if err := p.check(); err != nil {
			return err
		}
		return p.serve(ctx, a)
	})
}

func (p *parts) serve(ctx context.Context, a *kit.Run) error {
	s := &serving{parts: p, run: a, log: p.log.logger(a.Err.W)}
	defer s.end(0)
	for _, part := range p.list() {
		if o, ok := part.(opener); ok {
			if err := o.open(ctx, s); err != nil {
				return err
			}
		}
	}
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
		if err := s.announce(); err != nil {
			return err
		}
		if err := together(ctx, s.tasks); err != nil {
			return err
		}
		a.Err.Println("stopped")
		return nil
	})
}

// announce prints the addresses. Tests and scripts wait for this line.
func (s *serving) announce() error {
	a, address := s.run, s.http.url(s.tls.Cert != "")
	start := map[string]string{"http": address, "store": a.Store}
	if s.grpc.ln != nil {
		start["grpc"] = s.grpc.ln.Addr().String()
	}
	return a.Print(start, func() {
		a.Out.Printf("serving %s ", a.Out.Bold(address))
		if s.grpc.ln != nil {
			a.Out.Printf("and gRPC on %s ", a.Out.Bold(start["grpc"]))
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
		}
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
