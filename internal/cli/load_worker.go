package cli

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

	"github.com/weirlimits/weir/internal/load"
)

func (a *app) loadWorkerCmd() *cobra.Command {
	var target loadTarget
	var listen, token string
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Do a part of the runs that weir load run --workers asks for",
		Long: `Does a part of the runs that weir load run --workers asks for, until it is interrupted.
Whom it asks is said here, by --store, --http or --grpc: who has its token can have it ask
for anything there, but cannot point it elsewhere. What it is sent is not encrypted: put it
where only the coordinator reaches it.

Without a token it makes one, and prints it. It is better given as WEIR_LOAD_WORKER_WORKER_TOKEN.`,
		Example: "  weir load worker --listen 10.0.0.5:7070 --store 'dynamodb://limits?region=eu-west-1'",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if token == "" {
				token = strings.ToLower(rand.Text())
				a.err.Println("worker token " + token)
			}
			return a.loadWorker(cmd.Context(), &target, listen, token)
		},
	}
	target.bind(cmd.Flags())
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7070", "`HOST:PORT` for the coordinator")
	cmd.Flags().StringVar(&token, "worker-token", "", "`TOKEN` that the coordinator must know")
	return cmd
}

func (a *app) loadWorker(ctx context.Context, flags *loadTarget, listen, token string) (err error) {
	source, err := flags.open(a, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	twoProcessors()
	w := &load.Worker{Token: token, Open: func(namespace string) (load.Target, func() map[string]float64, func() error, error) {
		t, end, err := source.target(namespace)
		return t, source.measures(), end, err
	}}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	a.out.Println("weir load worker on " + ln.Addr().String() + " asks " + source.name)
	select {
	case err = <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return srv.Shutdown(last)
}
