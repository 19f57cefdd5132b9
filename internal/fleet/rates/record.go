package rates

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// report is what a worker writes about itself. Rates are in thousandths of a unit per second.
type report struct {
	Seq     uint64        `json:"seq"`
	Ack     fleet.Version `json:"ack"` // the grants that it follows
	Budgets []demand      `json:"budgets"`
}

// demand is what a worker reports about one budget.
type demand struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Want  int64  `json:"want"` // -1 means as much as possible
	Used  int64  `json:"used"`
}

// claim returns what the worker claims, as one of equals.
func (d *demand) claim() fleet.Claim {
	if d.Want < 0 {
		return fleet.Claim{Weight: 1, Want: fleet.Unbounded}
	}
	return fleet.Claim{Weight: 1, Want: d.Want}
}

func (r *report) demand(name string) *demand {
	i := slices.IndexFunc(r.Budgets, func(d demand) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Budgets[i]
}

// grants is what the leader writes. The slices of a grant follow Budgets; missing elements are 0.
type grants struct {
	fleet.Head

	LeaseMS int64             `json:"lease_ms"` // how long shares are valid
	Budgets []string          `json:"budgets"`
	Limits  []int64           `json:"limits"`
	Workers map[string]*grant `json:"workers"`
}

// grant is what a worker may use.
type grant struct {
	Seq  uint64  `json:"seq"`  // of the report that this answers: the lease counts from it
	Rate []int64 `json:"rate"` // until the lease ends
	Safe []int64 `json:"safe"` // after the lease
	// What the worker may still be using, from earlier grants.
	HeldRate []int64 `json:"held_rate,omitempty"`
	HeldSafe []int64 `json:"held_safe,omitempty"`
	// The newest grants that the worker may be following and the registry has lost; zero: none.
	Lost fleet.Version `json:"lost,omitzero"`
}

// capped reports whether no worker may use more than it does, because the registry has lost what one may be using.
func (g *grants) capped() bool {
	for _, w := range g.Workers {
		if w != nil && w.Lost != (fleet.Version{}) {
			return true
		}
	}
	return false
}

func at(s []int64, i int) int64 {
	if i < len(s) {
		return s[i]
	}
	return 0
}

// of returns what slices of a grant mean.
func (g *grants) of(rate, safe []int64, expires time.Time) fleet.Grant {
	by := fleet.Grant{Shares: make(fleet.Shares), Safe: make(fleet.Shares), Expires: expires}
	for i, name := range g.Budgets {
		by.Shares[name], by.Safe[name] = at(rate, i), at(safe, i)
	}
	return by
}
