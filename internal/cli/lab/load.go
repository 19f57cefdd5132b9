package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/lab/load"
)

// LoadCmd returns the command weir load.
func LoadCmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "load",
		Short: "Measure how fast a store or a server decides",
	}, loadRunCmd(a), loadListCmd(a), loadReportCmd(a), loadWorkerCmd(a))
}

// loadTarget selects the server to send calls to, or none for the store.
type loadTarget struct {
	http, grpc, token string
	tls               bool
}

func (f *loadTarget) bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.http, "http", "", "`URL` of a weir server to call instead of --store")
	flags.StringVar(&f.grpc, "grpc", "",
		"gRPC `HOST:PORT` of a weir server to call; --http is then used only for the setup")
	flags.BoolVar(&f.tls, "tls", false, "use gRPC over TLS; this machine must trust the server's certificate")
	flags.StringVar(&f.token, "token", "", "`TOKEN` for the server (default WEIR_TOKEN)")
}

// loadSource is the target of a run: a limiter in this process, or a server.
type loadSource struct {
	flags *loadTarget
	name  string
	lim   *weir.Limiter
	http  *load.HTTP
	meter load.Meter
	app   *kit.Run
}

func (f *loadTarget) open(a *kit.Run, setup bool) (*loadSource, error) {
	if f.token == "" {
		f.token, _ = a.LookupEnv("WEIR_TOKEN")
	}
	s := &loadSource{flags: f, app: a}
	if f.grpc != "" && f.http == "" && setup {
		return nil, kit.Usage(errors.New("limits cannot be set over gRPC: add the server's --http URL for the " +
			"setup, or --no-setup"))
	}
	var err error
	if f.http != "" {
		if s.http, err = load.NewHTTP(f.http, "", f.token); err != nil {
			return nil, kit.Usage(err)
		}
		s.name = f.http
	}
	if f.grpc != "" {
		s.name = "grpc " + f.grpc
	}
	if s.name != "" {
		return s, nil
	}
	scheme, rest, _ := strings.Cut(a.Store, ":")
	if s.name = scheme + ":"; !strings.Contains(rest, "@") { // keep passwords out of reports
		s.name = a.Store
	}
	a.Config.StoreTimeout, a.Config.Observer = 0, s.meter.Observer() // as in a program that uses the library
	s.lim, err = a.Open(stores.Access(setup))
	return s, err
}

func (s *loadSource) close() (err error) {
	if s.lim != nil {
		err = s.lim.Close()
	}
	if s.http != nil {
		err = errors.Join(err, s.http.Close())
	}
	return err
}

// target returns the target in a namespace, and a function that closes it.
func (s *loadSource) target(namespace string) (load.Target, func() error, error) {
	nothing := func() error { return nil }
	switch {
	case s.flags.grpc != "":
		t, err := load.DialGRPC(s.flags.grpc, namespace, s.flags.token, s.flags.tls)
		if err != nil {
			return nil, nil, kit.Usage(err)
		}
		return t, t.Close, nil
	case s.http != nil:
		return s.http.In(namespace), nothing, nil
	}
	return load.Library{Limiter: s.lim.In(namespace)}, nothing, nil
}

// measures returns a function that reads the store's measurements, or nil if there are none.
func (s *loadSource) measures() func() map[string]float64 {
	switch {
	case s.lim != nil:
		return func() map[string]float64 { return s.meter.Measures(s.app.Opened) }
	case s.http != nil:
		return s.http.Measures
	}
	return nil
}

func (s *loadSource) setUp(ctx context.Context, p *load.Plan, namespace string) error {
	if s.lim != nil {
		return p.SetUp(ctx, s.lim, namespace)
	}
	return s.http.SetUp(ctx, p, namespace)
}

func (s *loadSource) tearDown(ctx context.Context, namespace string) error {
	if s.lim != nil {
		return load.TearDown(ctx, s.lim, namespace)
	}
	return s.http.TearDown(ctx, namespace)
}

// loadFile returns the scenario in a file or, without a file, the built-in one with the given name.
func loadFile(name, file string) (*load.Scenario, error) {
	if file == "" {
		sc, err := load.Named(name)
		if err != nil {
			return nil, kit.Usage(err)
		}
		return sc, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	sc, err := load.Decode(name, text)
	if err != nil {
		return nil, kit.Usage(err)
	}
	return sc, nil
}

func loadListCmd(a *kit.Run) *cobra.Command {
	return &cobra.Command{
		Use:   "list [SCENARIO]",
		Short: "List the scenarios, or print one as a file",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				sc, err := loadFile(args[0], "")
				if err != nil {
					return err
				}
				return a.Print(sc, func() { a.Out.Printf("%s", sc.Text()) })
			}
			all := []*load.Scenario{}
			t := &term.Table{
				Header: []string{"SCENARIO", "LOOP", "USERS", "CALLS/S", "FOR", "ABOUT"},
				Right:  []int{2, 3, 4}, Cut: []int{5},
			}
			for _, name := range load.Names() {
				sc, err := load.Named(name)
				if err != nil {
					return err
				}
				rate := "-"
				if p, err := load.NewPlan(sc, load.Settings{}); err == nil && p.Calls() > 0 {
					rate = fmt.Sprintf("%.0f", float64(p.Calls())/time.Duration(sc.For).Seconds())
				}
				all = append(all, sc)
				t.Row(sc.Name, string(sc.Loop), a.Out.Count(int64(sc.Users)), rate, time.Duration(sc.For).String(),
					sc.About)
			}
			return a.Print(map[string]any{"scenarios": all}, func() { a.Out.Table(t) })
		},
	}
}

func loadReportCmd(a *kit.Run) *cobra.Command {
	var page string
	cmd := &cobra.Command{
		Use:   "report FILE [FILE]",
		Short: "Show a saved run, or compare two",
		Example: "  weir load run simple --save before.json\n" +
			"  weir load report before.json after.json --html compared.html",
		Args: func(cmd *cobra.Command, names []string) error {
			if len(names) == 0 {
				return fmt.Errorf("FILE is missing: %s", cmd.UseLine())
			}
			return cobra.MaximumNArgs(2)(cmd, names)
		},
		RunE: func(_ *cobra.Command, names []string) error {
			var runs [2]*load.Report
			for i, name := range names {
				r, err := load.ReadReport(name)
				if err != nil {
					return err
				}
				runs[i] = r
			}
			if err := writePage(page, runs[0], runs[1]); err != nil {
				return err
			}
			if runs[1] == nil {
				return a.Print(runs[0], func() { printLoad(a, runs[0]) })
			}
			c := load.Compare(runs[0], runs[1])
			return a.Print(c, func() { printComparison(a, c) })
		},
	}
	cmd.Flags().StringVar(&page, "html", "", "write an HTML page with charts to `FILE`")
	return cmd
}

func writePage(file string, x, y *load.Report) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, load.HTML(x, y), 0o600); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
