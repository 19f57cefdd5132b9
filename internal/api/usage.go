package api

import (
	"context"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// Period is the part of a request that selects windows of usage.
type Period struct {
	Window admin.Window `json:"window" in:"query" values:"hourly,daily,monthly" default:"daily"`
	From   time.Time    `json:"from" in:"query"`
	To     time.Time    `json:"to" in:"query"`
}

// Close ends a period without an end with the current window, so that all pages cover the same time.
func (p *Period) Close() {
	if p.To.IsZero() && p.Window != "" {
		p.To = p.Window.Next(p.Window.Start(time.Now()))
	}
}

// UsageSelection selects usage.
type UsageSelection struct {
	By       admin.UsageBy `json:"by" in:"query"`
	Entity   string        `json:"entity" in:"query" about:"entity"`
	Resource string        `json:"resource" in:"query" about:"resource"`
	Period
}

// UsageQuery selects a page of windows.
type UsageQuery struct {
	UsageSelection
	Page
}

// TopQuery selects a ranking.
type TopQuery struct {
	By       admin.UsageBy `json:"by" in:"query"`
	Limit    string        `json:"limit" in:"query"`
	Resource string        `json:"resource" in:"query" about:"resource"`
	Period
	Max int `json:"max" in:"query" range:"0.." default:"10"`
}

func (q *UsageSelection) query() admin.UsageQuery {
	return admin.UsageQuery{By: q.By, Entity: q.Entity, Resource: q.Resource, Window: q.Window, From: q.From, To: q.To}
}

// Everywhere implements [Wide].
func (q *UsageSelection) Everywhere() bool { return q.By == admin.ByStore }

// Everywhere implements [Wide].
func (q *TopQuery) Everywhere() bool { return q.By == admin.ByStore }

// The operations on usage.
var (
	ListUsage = declare(Op{Name: "listUsage", Method: "GET", Path: "/v1/usage"},
		func(ctx context.Context, lim *weir.Limiter, q *UsageQuery) (List[admin.Usage], error) {
			u := q.query()
			u.After, u.Max = q.After, q.Max
			p, err := admin.New(lim).Usage.Windows(ctx, u)
			return pageOf(p.Items, p.Next, same), err
		})
	SummarizeUsage = declare(Op{Name: "summarizeUsage", Method: "GET", Path: "/v1/usage/summary"},
		func(ctx context.Context, lim *weir.Limiter, q *UsageSelection) (admin.UsageSummary, error) {
			return admin.New(lim).Usage.Sum(ctx, q.query())
		})
	TopUsage = declare(Op{Name: "topUsage", Method: "GET", Path: "/v1/usage/top"},
		func(ctx context.Context, lim *weir.Limiter, q *TopQuery) (List[admin.Usage], error) {
			top, err := admin.New(lim).Usage.Top(ctx, admin.TopQuery{
				By: q.By, Limit: q.Limit, Resource: q.Resource, Window: q.Window, From: q.From, To: q.To, Max: q.Max,
			})
			return pageOf(top, "", same), err
		})
)
