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
	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/aws/function"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/cli/usage"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/gates"
)

// stageFlags define how to apply in stages. Without stages, everything is applied at once.
type stageFlags struct {
	Stages  []string      `json:"stage"`
	Bake    time.Duration `json:"bake" default:"10m"`
	Abort   string        `json:"abort_on"`
	Gate    string        `json:"gate"`
	Servers []string      `json:"deciding_server"`

	percents []int
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
	if _, err := thresholdOf(f.Abort); err != nil {
		return err
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

// terms returns the terms that the flags define; nil without --stage.
func (f *stageFlags) terms() *manifest.Terms {
	if len(f.Stages) == 0 {
		return nil
	}
	return &manifest.Terms{Stages: f.percents, Bake: f.Bake, AbortOn: f.Abort, GateURL: f.Gate, Servers: f.Servers}
}

// termsText describes the terms of a plan's rollout, as flags: --stage 5%,100% --bake 10m0s.
func termsText(t manifest.Terms) string {
	var text strings.Builder
	text.WriteString("--stage ")
	for _, percent := range t.Stages {
		text.WriteString(strconv.Itoa(percent) + "%,")
	}
	text.WriteString("100% --bake " + t.Bake.String())
	if t.AbortOn != "" {
		text.WriteString(" --abort-on '" + t.AbortOn + "'")
	}
	return text.String()
}

// thresholdOf reads the condition of --abort-on: the share of refused requests, negative for none.
func thresholdOf(abort string) (float64, error) {
	if abort == "" {
		return -1, nil
	}
	text, ok := strings.CutPrefix(abort, "refusal_rate>")
	n, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || !(n >= 0 && n < 1) {
		return 0, kit.Usagef("--abort-on %q is not refusal_rate>N with 0 <= N < 1", abort)
	}
	return n, nil
}

// rollout applies a plan in stages.
func rollout(
	ctx context.Context, a *kit.Run, lim *weir.Limiter, p *manifest.Plan, opts manifest.ApplyOptions, f *stageFlags,
) (manifest.Result, error) {
	return manifest.Rollout(ctx, lim, p, manifest.RolloutOptions{
		ApplyOptions: opts, Terms: f.terms(), Gate: func(ctx context.Context, t manifest.Terms) (gates.Gate, error) {
			return gate(ctx, a, t, windowsOf(lim.In(p.Namespace), time.Now()), p)
		},
		Staging: func(t manifest.Terms, percent, records int) {
			staging(a, p, t, percent, records)
		},
	})
}

// staging prints that a stage begins.
func staging(a *kit.Run, p *manifest.Plan, t manifest.Terms, percent, records int) {
	a.Err.Printf("%s: %s for %d%% of the entities, watched for %s\n",
		term.Clean(p.Namespace), kit.Plural(records, "record"), percent, t.Bake)
}

// gate returns the gate that watches a rollout.
func gate(
	ctx context.Context, a *kit.Run, t manifest.Terms, counted windows, p *manifest.Plan,
) (gates.Gate, error) {
	threshold, err := thresholdOf(t.AbortOn)
	if err != nil {
		return nil, err
	}
	tell := func(text string) { a.Err.Println(term.Clean(p.Namespace + ": " + text)) }
	g := &refusals{threshold: threshold, read: usageOf(counted), tell: tell}
	if len(t.Servers) > 0 {
		token, err := a.Token(secret.Text{}, "deciding-server")
		if err != nil {
			return nil, err
		}
		via, err := a.Transport("deciding-server")
		if err != nil {
			return nil, err
		}
		client := secret.Client(10*time.Second, via)
		g.read = overviewsOf(client, t.Servers, token.Reveal(), p.Namespace)
	}
	if t.GateURL == "" {
		return g, nil
	}
	read := lettingOf(&http.Client{Timeout: 10 * time.Second}, t.GateURL)
	ap := &approval{hash: p.Hash, read: read, tell: tell, next: g}
	return ap, ap.look(ctx) // fail before the rollout begins
}

// tallied counts the requests decided since some time, or since a server's start.
type tallied struct{ decided, refused int64 }

// refusals is a gate that closes if too large a share of the requests in a stage is refused.
type refusals struct {
	threshold float64
	read      func(context.Context) ([]tallied, error) // one per server, or one for the store
	tell      func(string)
	base      []tallied
	waiting   bool // for a request
}

// enough is the number of decisions needed to judge a stage before its end.
const enough = 100

// Open implements gates.Gate.
func (g *refusals) Open(context.Context, int) (bool, error) { return true, nil }

// Begin implements gates.Gate.
func (g *refusals) Begin(ctx context.Context, _ int) (err error) {
	g.waiting = false
	if g.threshold >= 0 {
		if g.base, err = g.read(ctx); err != nil {
			err = fmt.Errorf("read how many requests are refused: %w", err)
		}
	}
	return err
}

// Check implements gates.Gate. A stage in which nothing was decided does not end.
func (g *refusals) Check(ctx context.Context, last bool) (bool, error) {
	if g.threshold < 0 {
		return true, nil
	}
	now, err := g.read(ctx)
	if err != nil && last { // the outcome of the stage is unknown
		return false, fmt.Errorf("read how many requests are refused: %w", err)
	}
	if err != nil {
		return false, nil //nolint:nilerr // the next check may succeed
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
	if sum.decided < enough && !last {
		return false, nil
	}
	if sum.decided == 0 {
		if !g.waiting {
			g.tell("waiting: no request was decided in this stage")
		}
		g.waiting = true
		return false, nil
	}
	rate := float64(sum.refused) / float64(sum.decided)
	text := fmt.Sprintf("%d of %d requests were refused: refusal_rate %.3g", sum.refused, sum.decided, rate)
	if rate > g.threshold {
		return false, fmt.Errorf("%s > %g", text, g.threshold) //nolint:err113 // for people
	}
	if last {
		g.tell(fmt.Sprintf("%s <= %g", text, g.threshold))
	}
	return last, nil
}

// errNotCounted is for stores that count only refusals, on which every request would seem to be refused.
var errNotCounted = errors.New(
	"the store does not count the requests that it admits: name the deciding servers with --deciding-server",
)

// windows reads what was counted in a namespace, by window.
type windows func(context.Context) ([]weiradmin.Usage, error)

// windowsOf returns what the store has counted since the hour of began.
func windowsOf(lim *weir.Limiter, began time.Time) windows {
	return func(ctx context.Context) ([]weiradmin.Usage, error) {
		page, err := weiradmin.New(lim).Usage.Windows(ctx, function.SinceQuery(began))
		return page.Items, err
	}
}

// usageOf returns a function that reads what was counted.
func usageOf(counted windows) func(context.Context) ([]tallied, error) {
	return func(ctx context.Context) ([]tallied, error) {
		items, err := counted(ctx)
		if errors.Is(err, weir.ErrNoUsage) {
			err = fmt.Errorf("%w: name the deciding servers with --deciding-server", err)
		}
		if err != nil {
			return nil, err
		}
		sum, debited := make([]tallied, 1), false
		for i := range items {
			w := &items[i]
			sum[0].decided += w.Requests + w.Refused
			sum[0].refused += w.Refused
			debited = debited || usage.Spent(*w)
		}
		if debited && sum[0].decided == sum[0].refused {
			return nil, errNotCounted
		}
		return sum, nil
	}
}

// overviewsOf returns a function that reads what servers have decided in a namespace since they started.
func overviewsOf(
	client *http.Client, servers []string, token, namespace string,
) func(context.Context) ([]tallied, error) {
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
