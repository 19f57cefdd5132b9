package api

import (
	"context"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
)

// BalancesQuery selects balances of an entity.
type BalancesQuery struct {
	Entity   string `json:"entity" in:"path" about:"entity"`
	Resource string `json:"resource" in:"query" about:"resource"`
	Limit    string `json:"limit" in:"query"`
	Page
}

// TopUp is a credit to a balance.
type TopUp struct {
	Entity   string `json:"entity" in:"path" about:"entity"`
	Resource string `json:"resource" in:"query" about:"resource"`
	Limit    string `json:"limit" in:"path"`
	Amount   int64  `json:"amount"`
	ID       string `json:"id"`
}

// ToppedUp is a balance after a credit.
type ToppedUp struct {
	admin.Balance
	Repeated bool `json:"repeated,omitempty"` // the credit had been made before
}

// CreditsQuery selects the credits of a balance.
type CreditsQuery struct {
	Entity   string `json:"entity" in:"path" about:"entity"`
	Resource string `json:"resource" in:"query" about:"resource"`
	Limit    string `json:"limit" in:"path"`
	Page
}

// The operations on balances.
var (
	ListBalances = declare(Op{Name: "listBalances", Method: "GET", Path: "/v1/entities/{entity}/balances"},
		func(ctx context.Context, lim *weir.Limiter, q *BalancesQuery) (List[admin.Balance], error) {
			p, err := admin.New(lim).Balances.List(ctx, admin.BalanceQuery{
				BalanceKey: admin.BalanceKey{Entity: q.Entity, Resource: q.Resource, Limit: q.Limit},
				After:      q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, same), err
		})
	AddCredits = declare(
		Op{Name: "addCredits", Method: "POST", Path: "/v1/entities/{entity}/balances/{limit}", Need: Credit},
		func(ctx context.Context, lim *weir.Limiter, q *TopUp) (ToppedUp, error) {
			b, repeated, err := admin.New(lim).Balances.Add(ctx, admin.Credit{
				BalanceKey: admin.BalanceKey{Entity: q.Entity, Resource: q.Resource, Limit: q.Limit},
				Amount:     q.Amount, ID: q.ID,
			})
			return ToppedUp{b, repeated}, err
		})
	ListCredits = declare(
		Op{Name: "listCredits", Method: "GET", Path: "/v1/entities/{entity}/balances/{limit}/history"},
		func(ctx context.Context, lim *weir.Limiter, q *CreditsQuery) (List[admin.Credited], error) {
			p, err := admin.New(lim).Balances.History(ctx, admin.BalanceQuery{
				BalanceKey: admin.BalanceKey{Entity: q.Entity, Resource: q.Resource, Limit: q.Limit},
				After:      q.After, Max: q.Max,
			})
			return pageOf(p.Items, p.Next, same), err
		})
)
