package cost

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirlimits/weir/internal/lab/report"
)

// Document returns the estimate for people, with every formula if explain is set.
func (e *Estimate) Document(explain bool) *report.Document {
	row := func(t *report.Table, formula string, cells ...any) {
		if explain {
			cells = append(cells, formula)
		}
		t.Row(cells...)
	}
	calls := report.Table{Header: []string{"EACH HOUR", "TIMES", "CALLS", "RCU", "WCU", e.Prices.Currency + " A MONTH"}}
	m := &e.Money
	money := report.Table{Header: []string{e.Prices.Currency, "AN HOUR", "A MONTH"}}
	if explain {
		calls.Header, money.Header = append(calls.Header, "FORMULA"), append(money.Header, "FORMULA")
	}
	sum := func(formula, name string, p *Part, month any) {
		row(&calls, formula, name, figure(p.Count), figure(p.Calls), figure(p.Read), figure(p.Write), month)
	}
	for _, p := range e.Parts {
		sum(p.Formula, p.Name, &p, amount(p.Month))
	}
	sum("", "total", &e.Total, amount(e.Total.Month))
	sum("", "per request", &e.PerRequest, report.Number("-"))
	for _, i := range m.Items {
		row(&money, i.Formula, i.Name, amount(i.Hour), amount(i.Month))
	}
	row(&money, fmt.Sprintf("a month has %g hours", e.Prices.Hours), "total", amount(m.Hour), amount(m.Month))
	var l report.Lines
	l.Add("traffic", "of --entities %s, decided by --processes %s, on which lookups depend",
		figure(e.Traffic.Entities), figure(e.Traffic.Processes))
	if t := &e.Traffic; e.Recorded == nil && (t.InVain > 0 || t.PerWrite > 1) {
		l.Add("shared buckets", "%.1f %% of writes are repeated, and %.2f callers share one",
			100*t.InVain, t.PerWrite)
	}
	l.Add("per million requests", "%s", amount(m.PerMillion))
	l.Add("provisioned", "%s a month, with %s WCU and %s RCU of table and indexes for a peak of %g times the average",
		amount(m.Provisioned), figure(m.WriteCapacity), figure(m.ReadCapacity), e.Traffic.Peak)
	if r := &m.Reserved; r.Write+r.Read > 0 {
		l.Add("reserved", "%s a month, with %s WCU and %s RCU of these for a year", amount(r.Month),
			figure(r.Write), figure(r.Read))
	}
	l.Add("autoscaled", "%s a month, if capacity follows the load", amount(m.Following))
	l.Add("break-even", "at %.1f %% use of provisioned capacity; with %g %% use, up to a peak of %.1f",
		100*m.BreakEven, 100*e.Traffic.Target, m.BreakEvenPeak)
	l.Add("invented names", "%s a month more for %s of them a second; %s with entities: known",
		amount(m.Invented), figure(m.Names), amount(m.InventedKnown))
	l.Add("prices", "%s, list of %s, without taxes and free tiers", e.Prices.Region, e.Prices.Date)
	return &report.Document{Title: "weir cost", Parts: []any{calls, money, l}}
}

// Brief returns lines about the cost of decisions.
func (e *Estimate) Brief() (l report.Lines) {
	m := &e.Money
	l.Add("costs", "%s %s per hour, %s per month, %s per million decisions at this load",
		amount(m.Hour), e.Prices.Currency, amount(m.Month), amount(m.PerMillion))
	l.Add("  of which", "%s for writes, %s for reads of limits; %.1f %% of the decisions find them cached",
		amount(m.Items[0].Hour), amount(m.Items[1].Hour), 100*e.HitRatio)
	l.Add("  prices", "%s, list of %s, on demand", e.Prices.Region, e.Prices.Date)
	return l
}

// figure formats a number to four digits, or as a whole number from 1000 on.
func figure(v float64) report.Number {
	if math.Abs(v) >= 1000 {
		return report.Number(fmt.Sprintf("%.0f", v))
	}
	return report.Number(strings.TrimSuffix(fmt.Sprintf("%.4g", v), ".0"))
}

// amount formats money with two decimals, or with two significant digits below 0.1.
func amount(v float64) report.Number {
	if v == 0 || math.Abs(v) >= 0.1 {
		return report.Number(fmt.Sprintf("%.2f", v))
	}
	return report.Number(fmt.Sprintf("%.2g", v))
}
