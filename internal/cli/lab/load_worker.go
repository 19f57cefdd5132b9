package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/load"
)

// loadWorkerFlags define where a worker listens, and what it calls.
type loadWorkerFlags struct {
	loadTarget

	Listen      string      `json:"listen" default:"127.0.0.1:7070"`
	WorkerToken secret.Text `json:"worker_token"`
}

func loadWorkerCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "worker", Short: "Serve load runs started with weir load run --workers",
		Long: `Makes its part of the calls of runs that are started with weir load run --workers, until
interrupted. The worker's own --store, --http or --grpc sets the target: anyone with the worker
token can make it send any requests there, but cannot point it elsewhere. Traffic to the worker
is not encrypted, so run it where only the coordinator can reach it.

The worker token comes from WEIR_LOAD_WORKER_WORKER_TOKEN or --worker-token-file. Without a
token, the worker generates one and prints it.`,
		Example: "  weir load worker --listen 10.0.0.5:7070 --store 'dynamodb://limits?region=eu-west-1'",
	}, func(ctx context.Context, q *loadWorkerFlags) error {
		if !q.WorkerToken.Given() { // this one is to be passed on
			q.WorkerToken = secret.New(strings.ToLower(rand.Text()))
			a.Err.Println("worker token " + q.WorkerToken.Reveal())
		}
		return loadWorker(ctx, a, q)
	})
}

func loadWorker(ctx context.Context, a *kit.Run, q *loadWorkerFlags) (err error) {
	source, err := q.open(a, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	twoProcessors()
	open := func(namespace string) (load.Target, func() map[string]float64, func() error, error) {
		t, end, err := source.target(namespace)
		return t, source.measures(), end, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", q.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{
		Handler: &load.Worker{Token: q.WorkerToken.Reveal(), Open: open}, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	a.Out.Println("weir load worker on " + ln.Addr().String() + " calls " + source.name)
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return srv.Shutdown(last)
}
