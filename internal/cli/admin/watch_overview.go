package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/term"
)

// overview is the answer of GET /v1/overview, with the fields that are shown.
type overview struct {
	At        time.Time `json:"at"`
	Started   time.Time `json:"started"`
	Version   string    `json:"version"`
	Namespace string    `json:"namespace"`
	PerSecond rates     `json:"per_second"`
	Latency   struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
		Max float64 `json:"max"`
	} `json:"latency_ms"`
	Store struct {
		Calls  float64 `json:"calls_per_decision"`
		Errors float64 `json:"errors_per_second"`
		Hits   float64 `json:"cache_hit_ratio"`

		Breaker    string  `json:"breaker"`
		Unanswered float64 `json:"unanswered"`
	} `json:"store"`
	History  []rates `json:"history"`
	Spending []struct {
		Entity   string `json:"entity"`
		Resource string `json:"resource"`
		Limit    string `json:"limit"`
		Tokens   int64  `json:"tokens"`
	} `json:"top_spending"`
	Refused []struct {
		Entity   string `json:"entity"`
		Resource string `json:"resource"`
		Refused  int64  `json:"refused"`
	} `json:"top_refused"`
}

// rates are decisions per second.
type rates struct {
	Allowed  float64 `json:"allowed"`
	Refused  float64 `json:"refused"`
	Degraded float64 `json:"degraded"`
	Failed   float64 `json:"failed"`
}

// refusal returns the share of decisions that were refused.
func (r rates) refusal() float64 {
	return r.Refused / cmp.Or(r.Allowed+r.Refused, 1)
}

// overviewPicture shows what a server decides.
type overviewPicture struct {
	server string
	overview
}

func (p *overviewPicture) read(data []byte) error {
	var o overview
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	p.overview = o
	return nil
}

func (p *overviewPicture) draw(a *kit.Run, width, height int) []string {
	up := p.At.Sub(p.Started).Truncate(time.Second)
	lines := []string{
		spread(width, a.Out.Bold("weir")+"  "+a.Out.Faint(
			term.Clean(fmt.Sprintf("%s  %s  namespace %s", p.server, p.Version, p.Namespace)),
		),
			fmt.Sprintf("up %s  %s UTC", kit.Span(up), p.At.UTC().Format(time.TimeOnly))),
		"",
		p.rate(a, "allowed", p.PerSecond.Allowed, a.Out.Good, width, func(r rates) float64 { return r.Allowed }),
		p.rate(a, "refused", p.PerSecond.Refused, a.Out.Warn, width, func(r rates) float64 { return r.Refused }),
		p.rate(a, "degraded", p.PerSecond.Degraded, a.Out.Bad, width, func(r rates) float64 { return r.Degraded }),
		p.rate(a, "failed", p.PerSecond.Failed, a.Out.Bad, width, func(r rates) float64 { return r.Failed }),
		"",
		labelled("refusals", fmt.Sprintf("%.1f%% of the decisions in the last 10 s", 100*p.PerSecond.refusal())),
		labelled(
			"latency",
			fmt.Sprintf(
				"p50 %s   p99 %s   max %s", millis(p.Latency.P50), millis(p.Latency.P99), millis(p.Latency.Max),
			),
		),
		labelled("store", fmt.Sprintf("%.2f calls/decision   %s   %.1f%% from the cache",
			p.Store.Calls, alarm(a, p.Store.Errors, fmt.Sprintf("%.1f errors/s", p.Store.Errors)), 100*p.Store.Hits)),
		p.trouble(a),
	}
	if lines[len(lines)-1] != "" {
		lines = append(lines, "")
	}
	return append(lines, p.tops(a, width, height-len(lines))...)
}

// trouble returns what the store does not answer; "" if it answers everything in time.
func (p *overviewPicture) trouble(a *kit.Run) string {
	switch {
	case p.Store.Breaker == "open" || p.Store.Breaker == "half-open":
		return labelled("", a.Out.Bad("the store does not answer, and is not called"))
	case p.Store.Unanswered > 0:
		return labelled("", a.Out.Warn(unanswered(p.Store.Unanswered)+" of decisions were not answered in time"))
	}
	return ""
}

// unanswered formats a share that is more than 0.
func unanswered(share float64) string {
	if share < 0.001 {
		return "< 0.1 %"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
}

const label = 10

func labelled(name, text string) string { return term.Fit(name, label) + text }

// rate returns a line with a figure and its history, colored only where it is not zero.
func (p *overviewPicture) rate(
	a *kit.Run, name string, now float64, style func(string) string, width int, of func(rates) float64,
) string {
	values := make([]float64, len(p.History))
	for i, r := range p.History {
		values[i] = of(r)
	}
	line, top := term.Spark(values, width-label-24)
	figure := fmt.Sprintf("%10s/s  ", short(now))
	peak := ""
	if top > 0 {
		line, peak = style(line), a.Out.Faint("  peak "+short(top))
	} else {
		line = a.Out.Faint(line)
	}
	if now > 0 {
		figure = style(figure)
	}
	return labelled(name, figure) + line + peak
}

// tops returns two lists side by side: the entities that spent most, and those that were refused most.
func (p *overviewPicture) tops(a *kit.Run, width, height int) []string {
	half := (width - 2) / 2
	left := []string{a.Out.Bold(term.Fit("TOP SPENDING", half))}
	for _, s := range p.Spending {
		left = append(left, row(half, s.Entity+" on "+s.Resource, s.Limit+" "+short(float64(s.Tokens))))
	}
	right := []string{a.Out.Bold("TOP REFUSED")}
	for _, r := range p.Refused {
		right = append(right, row(half, r.Entity+" on "+r.Resource, short(float64(r.Refused))))
	}
	var lines []string
	for i := 0; i < min(max(len(left), len(right)), max(2, height)); i++ {
		l, r := strings.Repeat(" ", half), ""
		if i < len(left) {
			l = left[i]
		}
		if i < len(right) {
			r = right[i]
		}
		lines = append(lines, l+"  "+r)
	}
	if len(p.Spending)+len(p.Refused) == 0 {
		lines = append(lines, a.Out.Faint("no decisions yet"))
	}
	return lines
}

// row returns a text on the left and a figure on the right, in exactly width columns.
func row(width int, text, figure string) string {
	figure = term.Clean(figure)
	if lipgloss.Width(figure) > width/2 {
		figure = term.Fit(figure, width/2)
	}
	return term.Fit(term.Clean(text), width-lipgloss.Width(figure)-1) + " " + figure
}

// spread returns a line with a text at either end.
func spread(width int, left, right string) string {
	return left + strings.Repeat(" ", max(2, width-lipgloss.Width(left)-lipgloss.Width(right))) + right
}

func alarm(a *kit.Run, n float64, text string) string {
	if n > 0 {
		return a.Out.Bad(text)
	}
	return text
}

// short formats a figure in a few characters: 0, 3.4, 812, 12.5K, 3.21M.
func short(n float64) string {
	switch {
	case n < 99.95 && n != math.Trunc(n):
		return strconv.FormatFloat(n, 'f', 1, 64)
	case n < 9999.5:
		return strconv.FormatFloat(n, 'f', 0, 64)
	case n < 999_950:
		return strconv.FormatFloat(n/1e3, 'f', 1, 64) + "K"
	case n < 999_950_000:
		return strconv.FormatFloat(n/1e6, 'f', 1, 64) + "M"
	}
	return strconv.FormatFloat(n/1e9, 'f', 1, 64) + "G"
}

func millis(ms float64) string {
	if ms < 10 {
		return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
	}
	return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
}

func (p *overviewPicture) header() []string {
	return []string{
		"AT", "ALLOWED/S", "REFUSED/S", "DEGRADED/S", "FAILED/S", "REFUSED %", "P50 MS", "P99 MS", "STORE CALLS",
		"STORE ERRORS/S",
	}
}

func (p *overviewPicture) rows() [][]string {
	f := func(n float64, decimals int) string { return strconv.FormatFloat(n, 'f', decimals, 64) }
	r := p.PerSecond
	return [][]string{{
		kit.Instant(p.At), f(r.Allowed, 1), f(r.Refused, 1), f(r.Degraded, 1), f(r.Failed, 1), f(100*r.refusal(), 1),
		f(p.Latency.P50, 3), f(p.Latency.P99, 3), f(p.Store.Calls, 2), f(p.Store.Errors, 1),
	}}
}
