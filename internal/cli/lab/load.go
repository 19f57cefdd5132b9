package lab

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/lab/load"
	"github.com/weirlimits/weir/internal/lab/traffic"
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
	HTTP  string      `json:"http"`
	GRPC  string      `json:"grpc"`
	TLS   bool        `json:"tls"`
	Token secret.Text `json:"token"`
}

// loadSource is the target of a run: a limiter in this process, or a server.
type loadSource struct {
	flags *loadTarget
	name  string
	lim   *weir.Limiter
	http  *load.HTTP
	tls   *tls.Config // nil is the default
	meter load.Meter
	app   *kit.Run
}

func (f *loadTarget) open(a *kit.Run, setup bool) (*loadSource, error) {
	var err error
	if f.Token, err = a.Token(f.Token, "http", "grpc"); err != nil {
		return nil, err
	}
	s := &loadSource{flags: f, app: a}
	if s.tls, err = a.TLS("http", "grpc"); err != nil {
		return nil, err
	}
	if f.GRPC != "" && f.HTTP == "" && setup {
		return nil, kit.Usage(errors.New("limits cannot be set over gRPC: add the server's --http URL for the " +
			"setup, or --no-setup"))
	}
	if f.HTTP != "" {
		if s.http, err = load.NewHTTP(f.HTTP, f.Token.Reveal(), s.tls); err != nil {
			return nil, kit.Usage(err)
		}
		s.name = secret.Address(f.HTTP).String()
	}
	if f.GRPC != "" {
		s.name = "grpc " + f.GRPC
	}
	if s.name != "" {
		return s, nil
	}
	s.name = a.Store.String()
	a.Config.StoreTimeout, a.Config.Observer = 0, s.meter.Observer() // as in a program that uses the library
	a.Decides = true
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
	case s.flags.GRPC != "":
		var secure *tls.Config
		if s.flags.TLS {
			secure = cmp.Or(s.tls, &tls.Config{MinVersion: tls.VersionTLS12})
		}
		t, err := load.DialGRPC(s.flags.GRPC, namespace, s.flags.Token.Reveal(), secure)
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

func (s *loadSource) setUp(ctx context.Context, p *traffic.Plan, namespace string) error {
	if s.lim != nil {
		return load.SetUp(ctx, p, s.lim, namespace)
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
func loadFile(name, file string) (*traffic.Scenario, error) {
	if file == "" {
		sc, err := traffic.Named(name)
		if err != nil {
			return nil, kit.Usage(err)
		}
		return sc, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the scenario: %w", err)
	}
	sc, err := traffic.Decode(name, text)
	if err != nil {
		return nil, kit.Usage(err)
	}
	return sc, nil
}

// loadListed is a scenario as listed, with its rate.
type loadListed struct {
	*traffic.Scenario
	rate string
}

var loadScenarios = kit.Columns([]kit.Column[loadListed]{
	{Name: "scenario", Of: func(l *loadListed) any { return l.Name }},
	{Name: "loop", Of: func(l *loadListed) any { return l.Loop }},
	{Name: "users", Of: func(l *loadListed) any { return l.Users }},
	{Name: "calls/s", Of: func(l *loadListed) any { return kit.Number(l.rate) }},
	{Name: "for", Of: func(l *loadListed) any { return kit.Number(time.Duration(l.For).String()) }},
	{Name: "about", Of: func(l *loadListed) any { return l.About }, Cut: true},
})

// scenarioName names a built-in scenario.
type scenarioName struct {
	Scenario string `json:"scenario" arg:"SCENARIO"`
}

func loadListCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{Use: "list [SCENARIO]", Short: "List the scenarios, or print one as a file"},
		func(_ context.Context, q *scenarioName) error {
			if q.Scenario != "" {
				sc, err := loadFile(q.Scenario, "")
				if err != nil {
					return err
				}
				return a.Print(sc, func() { a.Out.Printf("%s", sc.Text()) })
			}
			all := []loadListed{}
			for _, name := range traffic.Names() {
				sc, err := traffic.Named(name)
				if err != nil {
					return err
				}
				l := loadListed{Scenario: sc}
				if p, err := traffic.NewPlan(sc, traffic.Settings{}); err == nil && p.Calls() > 0 {
					l.rate = fmt.Sprintf("%.0f", float64(p.Calls())/time.Duration(sc.For).Seconds())
				}
				all = append(all, l)
			}
			return a.Print(map[string]any{"scenarios": all}, func() { loadScenarios(a, all, true) })
		})
}

// loadFiles names saved runs.
type loadFiles struct {
	File  string `json:"file" arg:"FILE"`
	Other string `json:"other" arg:"FILE"`
	Page  string `json:"html"`
}

func loadReportCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "report FILE [FILE]", Short: "Show a saved run, or compare two",
		Example: "  weir load run simple --save before.json\n" +
			"  weir load report before.json after.json --html compared.html",
	}, func(_ context.Context, q *loadFiles) error {
		run, err := load.ReadReport(q.File)
		if err != nil {
			return err
		}
		if q.Other == "" {
			if err := writePage(q.Page, run, nil); err != nil {
				return err
			}
			return a.Print(run, func() { Show(a, run.Document()) })
		}
		other, err := load.ReadReport(q.Other)
		if err != nil {
			return err
		}
		if err := writePage(q.Page, run, other); err != nil {
			return err
		}
		c := load.Compare(run, other)
		return a.Print(c, func() { Show(a, c.Document()) })
	})
}

func writePage(file string, x, y *load.Report) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, load.Page(x, y), 0o600); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
