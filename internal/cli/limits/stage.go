package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	weiradmin "github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/internal/cli/admin"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
)

// stageFlags define how to apply in stages. Without stages, everything is applied at once.
type stageFlags struct {
	Stages  []string      `json:"stage"`
	Bake    time.Duration `json:"bake" default:"10m"`
	Abort   string        `json:"abort_on"`
	Gate    string        `json:"gate"`
	Servers []string      `json:"deciding_server"`

	percents  []int
	threshold float64 // negative for none
}

// errStages describes the format of --stage.
var errStages = errors.New("--stage must be percentages that ascend to 100%, such as 5%,25%,100%")

func (f *stageFlags) check() error {
	f.Stages, f.Servers = kit.Words(f.Stages), kit.Words(f.Servers)
	if len(f.Stages) == 0 {
		if f.Abort != "" || len(f.Servers) > 0 || f.Gate != "" {
			return kit.Usage(errors.New("--abort-on, --deciding-server and --gate need --stage"))
		}
		return nil
	}
	if f.Gate != "" {
		if err := checkGate(f.Gate); err != nil {
			return err
		}
	}
	last := 0
	for _, text := range f.Stages {
		digits, ok := strings.CutSuffix(text, "%")
		n, err := strconv.Atoi(digits)
		if !ok || err != nil || n <= last || n > 100 {
			return kit.Usage(errStages)
		}
		if last = n; n < 100 {
			f.percents = append(f.percents, n)
		}
	}
	f.threshold = -1
	if f.Abort != "" {
		text, ok := strings.CutPrefix(f.Abort, "refusal_rate>")
		n, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || !(n >= 0 && n < 1) {
			return kit.Usagef("--abort-on %q is not refusal_rate>N with 0 <= N < 1", f.Abort)
		}
		f.threshold = n
	}
	switch {
	case last != 100:
		return kit.Usage(errStages)
	case f.Bake <= 0:
		return kit.Usage(errors.New("--bake must be positive"))
	case len(f.Servers) > 0 && f.Abort == "":
		return kit.Usage(errors.New("--deciding-server needs --abort-on"))
	}
	return nil
}

// rollout applies a plan in stages.
func rollout(
	ctx context.Context, a *kit.Run, lim *weir.Limiter, p *manifest.Plan, opts manifest.ApplyOptions, f *stageFlags,
) (manifest.Result, error) {
	gate, err := gate(ctx, a, f, lim, p)
	if err != nil {
		return manifest.Result{}, err
	}
	return manifest.Rollout(ctx, lim, p, manifest.RolloutOptions{
		ApplyOptions: opts, Stages: f.percents, Bake: f.Bake, Gate: gate,
		Staging: func(percent, records int) {
			a.Err.Printf("%s: %s for %d%% of the entities, watched for %s\n",
				p.Namespace, kit.Plural(records, "record"), percent, f.Bake)
		},
	})
}

// gate returns the gate that watches a rollout.
func gate(ctx context.Context, a *kit.Run, f *stageFlags, lim *weir.Limiter, p *manifest.Plan) (manifest.Gate, error) {
	g := &refusals{threshold: f.threshold, read: usageOf(lim.In(p.Namespace), time.Now())}
	if len(f.Servers) > 0 {
		token, err := a.Token("deciding-server")
		if err != nil {
			return nil, err
		}
		g.read = overviewsOf(f.Servers, token, p.Namespace)
	}
	if f.Gate == "" {
		return g, nil
	}
	ap := &approval{hash: p.Hash, read: lettingOf(
		&http.Client{Timeout: 10 * time.Second}, f.Gate,
	), tell: func(text string) {
		a.Err.Println(p.Namespace + ": " + text)
	}, next: g}
	return ap, ap.look(ctx) // fail before the rollout begins
}

// tallied counts the requests decided since some time, or since a server's start.
type tallied struct{ decided, refused int64 }

// refusals is a gate that closes if too large a share of the requests in a stage is refused.
type refusals struct {
	threshold float64
	read      func(context.Context) ([]tallied, error) // one per server, or one for the store
	base      []tallied
}

// enough is the number of decisions needed to judge a stage before its end.
const enough = 100

// Open implements manifest.Gate.
func (g *refusals) Open(context.Context, int) (bool, error) { return true, nil }

// Begin implements manifest.Gate.
func (g *refusals) Begin(ctx context.Context, _ int) (err error) {
	if g.threshold >= 0 {
		if g.base, err = g.read(ctx); err != nil {
			err = fmt.Errorf("read how many requests are refused: %w", err)
		}
	}
	return err
}

// Check implements manifest.Gate.
func (g *refusals) Check(ctx context.Context, last bool) error {
	if g.threshold < 0 {
		return nil
	}
	now, err := g.read(ctx)
	if err != nil && last { // the outcome of the stage is unknown
		return fmt.Errorf("read how many requests are refused: %w", err)
	}
	if err != nil {
		return nil //nolint:nilerr // the next check may succeed
	}
	var sum tallied
	for i, n := range now {
		b := g.base[i]
		if n.decided < b.decided || n.refused < b.refused { // the server was restarted
			b = tallied{}
			g.base[i] = b
		}
		sum.decided += n.decided - b.decided
		sum.refused += n.refused - b.refused
	}
	if sum.decided == 0 || sum.decided < enough && !last {
		return nil
	}
	if rate := float64(sum.refused) / float64(sum.decided); rate > g.threshold {
		//nolint:err113 // for people
		return fmt.Errorf(
			"%d of %d requests were refused: refusal_rate %.3g > %g", sum.refused, sum.decided, rate, g.threshold,
		)
	}
	return nil
}

// errNotCounted is for stores that count only refusals, on which every request would seem to be refused.
var errNotCounted = errors.New(
	"the store does not count the requests that it admits: name the deciding servers with --deciding-server",
)

// usageOf returns a function that reads what the store has counted in a namespace since the hour of began.
func usageOf(lim *weir.Limiter, began time.Time) func(context.Context) ([]tallied, error) {
	return func(ctx context.Context) ([]tallied, error) {
		page, err := weiradmin.New(lim).Usage.Windows(ctx, weiradmin.UsageQuery{
			By: weiradmin.ByNamespace, Window: weiradmin.Hourly, From: began, Max: 1000,
		})
		if errors.Is(err, weir.ErrNoUsage) {
			err = fmt.Errorf("%w: name the deciding servers with --deciding-server", err)
		}
		if err != nil {
			return nil, err
		}
		sum, debited := make([]tallied, 1), false
		for i := range page.Items {
			w := &page.Items[i]
			sum[0].decided += w.Requests + w.Refused
			sum[0].refused += w.Refused
			debited = debited || admin.Spent(*w)
		}
		if debited && sum[0].decided == sum[0].refused {
			return nil, errNotCounted
		}
		return sum, nil
	}
}

// overviewsOf returns a function that reads what servers have decided in a namespace since they started.
func overviewsOf(servers []string, token, namespace string) func(context.Context) ([]tallied, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(ctx context.Context) ([]tallied, error) {
		all := make([]tallied, len(servers))
		for i, server := range servers {
			from := strings.TrimSuffix(server, "/") + "/v1/overview?" + url.Values{"namespace": {namespace}}.Encode()
			body, _, err := get(ctx, client, from, token)
			var o struct {
				Totals *struct{ Allowed, Refused int64 } `json:"totals"`
			}
			if err == nil {
				err = json.Unmarshal(body, &o)
			}
			if err == nil && o.Totals == nil {
				err = errors.New("the answer of the server is not an overview")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", server, err)
			}
			all[i] = tallied{o.Totals.Allowed + o.Totals.Refused, o.Totals.Refused}
		}
		return all, nil
	}
}
