package governor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir/governor"
	governormetrics "github.com/weirlimits/weir/governor/metrics"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/serve"
	"github.com/weirlimits/weir/internal/serve/dynamoproxy"
	"github.com/weirlimits/weir/internal/serve/metrics"
)

// governorProxy configures a proxy.
type governorProxy struct {
	Budget    []string      `json:"budget" required:"true"`
	Fleet     string        `json:"fleet"`
	Listen    string        `json:"listen" default:"127.0.0.1:8000"`
	Endpoint  string        `json:"endpoint"`
	MaxWait   time.Duration `json:"max_wait" range:"100ms.." default:"25s"`
	AccessKey secret.Text   `json:"access_key"`
	Insecure  bool          `json:"insecure"`
	Metrics   string        `json:"metrics"`
}

// proxy is one while it is put together and runs.
type proxy struct {
	*kit.Run
	q   *governorProxy
	tls serve.TLSFlags
	log serve.LogFlags

	logger *slog.Logger
	ln     net.Listener
	server *http.Server
	tasks  []func(context.Context) error
}

func governorProxyCmd(a *kit.Run) *cobra.Command {
	p := &proxy{Run: a}
	return kit.Func(a, kit.Spec{
		Use: "proxy", Short: "Keep DynamoDB clients in any language within a budget, behind an endpoint URL",
		Long: `Passes requests to DynamoDB as budgets of read and write capacity allow, until interrupted. Clients
need only its address: AWS_ENDPOINT_URL_DYNAMODB=http://127.0.0.1:8000. Requests wait until the
budgets allow them, and are charged what DynamoDB reports.

The proxy signs requests with its own AWS credentials: whoever reaches it may do what these may.
It therefore accepts connections from this machine alone. For others, make clients sign with a
key (--access-key-file) and use TLS, or pass --insecure.`,
		Example: `  weir governor proxy --budget 1500:500
  weir governor proxy --budget orders=30% --budget other=100:20 --fleet s3://my-bucket/jobs/nightly
  weir governor proxy --budget 1500:500 --listen :8000 --access-key-file key --tls-cert cert.pem --tls-key key.pem`,
		With: []any{&p.tls, &p.log}, Titles: []string{"TLS", "Log"},
	}, func(ctx context.Context, q *governorProxy) error {
		p.q = q
		return p.run(ctx)
	})
}

func (p *proxy) run(ctx context.Context) (err error) {
	if p.logger, err = p.log.Open(p.Err.W); err != nil {
		return err
	}
	conf, err := p.tls.Open(p.logger)
	if err != nil {
		return err
	}
	key, err := clientKey(p.q.AccessKey)
	if err != nil {
		return err
	}
	if err := checkListen(p.q.Listen, p.q.Insecure || key.AccessKeyID != "" && conf != nil); err != nil {
		return err
	}
	if err := p.MaySend("the signature of the AWS credentials", "endpoint"); err != nil {
		return err
	}
	client, endpoint, err := upstream(ctx, p.q.Endpoint)
	if err != nil {
		return err
	}
	if p.ln, err = listen(ctx, "--listen", p.q.Listen); err != nil {
		return err
	}
	defer p.ln.Close()
	if endpoint.Host == p.ln.Addr().String() {
		return kit.Usage(errors.New("--endpoint is the proxy's own address: give DynamoDB's"))
	}
	g, closeFleet, err := p.governor(ctx, client)
	if err != nil {
		return err
	}
	err = p.serve(ctx, dynamoproxy.Config{
		Governor: g, Endpoint: endpoint, Region: client.Options().Region, Credentials: client.Options().Credentials,
		Client: key, Log: p.logger, LogRequests: p.log.Requests,
	}, conf)
	return errors.Join(err, g.Close(), closeFleet())
}

// upstream returns a client of DynamoDB and the address that it uses.
func upstream(ctx context.Context, endpoint string) (*dynamodb.Client, *url.URL, error) {
	cfg, err := awsconfig.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, nil, err
	}
	client := dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	o := client.Options()
	if o.Region == "" {
		return nil, nil, kit.Usage(errors.New("no AWS region is known: set AWS_REGION"))
	}
	if _, err := o.Credentials.Retrieve(ctx); err != nil {
		return nil, nil, fmt.Errorf("the proxy signs requests with its own AWS credentials: %w", err)
	}
	at, err := o.EndpointResolverV2.ResolveEndpoint(ctx, dynamodb.EndpointParameters{
		Region: &o.Region, Endpoint: o.BaseEndpoint,
		UseFIPS:      aws.Bool(o.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled),
		UseDualStack: aws.Bool(o.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled),
	})
	if err != nil {
		return nil, nil, err
	}
	if at.URI.Host == "" || at.URI.Scheme != "http" && at.URI.Scheme != "https" {
		return nil, nil, kit.Usagef(
			"--endpoint %q is not a URL such as http://127.0.0.1:8001", secret.Address(at.URI.String()),
		)
	}
	return client, &at.URI, nil
}

// governor returns the governor, and what closes its fleet's records.
func (p *proxy) governor(ctx context.Context, client governor.TableDescriber) (
	*governor.Governor, func() error, error,
) {
	all, err := readBudgets(ctx, client, p.q.Budget)
	if err != nil {
		return nil, nil, err
	}
	cfg := all.Config
	cfg.MaxWait, cfg.Worker = p.q.MaxWait, "proxy"
	done := func() error { return nil }
	if p.q.Fleet != "" {
		if cfg.Coordinator, done, err = coordinator(ctx, p.Run, p.q.Fleet); err != nil {
			return nil, nil, err
		}
	}
	g, err := governor.New(cfg)
	if err != nil {
		return nil, nil, errors.Join(inBudget(err), done())
	}
	for _, source := range all.followed {
		p.tasks = append(p.tasks, func(ctx context.Context) error {
			g.Follow(ctx, followEvery, source, func(err error) {
				p.logger.Warn("a table's capacity is not known: its budget stays as it is", slog.Any("error", err))
			})
			return nil
		})
	}
	return g, done, nil
}

// serve serves until ctx ends.
func (p *proxy) serve(ctx context.Context, cfg dynamoproxy.Config, conf *tls.Config) error {
	h, err := dynamoproxy.New(cfg)
	if err != nil {
		return err
	}
	if p.q.Metrics != "" {
		ln, err := listen(ctx, "--metrics", p.q.Metrics)
		if err != nil {
			return err
		}
		defer ln.Close()
		report := func(s *metrics.Scrape) { report(s, h.Counts()) }
		handler := metrics.Only(report, governormetrics.Collector(cfg.Governor))
		p.tasks = append(p.tasks, serve.Scrapes(ln, p.q.Metrics, handler))
	}
	p.server = &http.Server{
		Handler: serve.OnThisMachine(h, p.ln, p.q.Listen), ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(p.logger.Handler(), slog.LevelWarn), TLSConfig: conf,
	}
	p.tasks = append(p.tasks, p.accept)
	address := "http://" + p.ln.Addr().String()
	if conf != nil {
		address = "https://" + p.ln.Addr().String()
	}
	err = p.Print(map[string]string{"listen": address, "endpoint": cfg.Endpoint.String()}, func() {
		p.Out.Printf("serving %s for %s\n", p.Out.Bold(address), cfg.Endpoint)
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, t := range p.tasks {
		g.Go(func() error { return t(ctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	p.Err.Println("stopped")
	return nil
}

// followEvery is how often tables of which a share is given are described.
const followEvery = time.Minute

// grace is how long requests in progress may take when the proxy ends, waiting included.
const grace = 30 * time.Second

// accept serves connections until ctx ends, then finishes the requests in progress.
func (p *proxy) accept(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		if p.server.TLSConfig != nil {
			ended <- p.server.ServeTLS(p.ln, "", "")
			return
		}
		ended <- p.server.Serve(p.ln)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := p.server.Shutdown(within)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut off after %s: %w", grace, err), p.server.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: choose another address with %s", err, flag)
	}
	return ln, nil
}
