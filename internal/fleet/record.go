package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
)

// report is what a worker writes about itself. Rates are in thousandths of a unit per second.
type report struct {
	Seq     uint64   `json:"seq"`
	Ack     Version  `json:"ack"` // the grants that it follows
	Budgets []demand `json:"budgets"`
}

// demand is what a worker reports about one budget.
type demand struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Want  int64  `json:"want"` // -1 means as much as possible
	Used  int64  `json:"used"`
}

// claim returns what the worker claims, as one of equals.
func (d *demand) claim() Claim {
	if d.Want < 0 {
		return Claim{Weight: 1, Want: Unbounded}
	}
	return Claim{Weight: 1, Want: d.Want}
}

func (r *report) demand(name string) *demand {
	i := slices.IndexFunc(r.Budgets, func(d demand) bool { return d.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Budgets[i]
}

// grants is what the leader writes. The slices of a grant follow Budgets; missing elements are 0. Without budgets,
// there is only the number of workers.
type grants struct {
	Version
	Count   int               `json:"count,omitempty"`
	Leader  string            `json:"leader"`   // "" if it has resigned
	LeaseMS int64             `json:"lease_ms"` // how long shares are valid
	Budgets []string          `json:"budgets"`
	Limits  []int64           `json:"limits"`
	Workers map[string]*grant `json:"workers"`
}

// workers returns the number of workers that the leader knew.
func (g *grants) workers() int { return max(g.Count, len(g.Workers)) }

// grant is what a worker may use.
type grant struct {
	Seq  uint64  `json:"seq"`  // of the report that this answers: the lease counts from it
	Rate []int64 `json:"rate"` // until the lease ends
	Safe []int64 `json:"safe"` // after the lease
	// What the worker may still be using, from earlier grants.
	HeldRate []int64 `json:"held_rate,omitempty"`
	HeldSafe []int64 `json:"held_safe,omitempty"`
}

func at(s []int64, i int) int64 {
	if i < len(s) {
		return s[i]
	}
	return 0
}

func decode[T any](r Record) (*T, error) {
	v := new(T)
	if r.Version == "" {
		return v, nil
	}
	if err := json.Unmarshal(r.Value, v); err != nil {
		return nil, fmt.Errorf("%s is not a fleet's record: %w", r.Name, err)
	}
	return v, nil
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of numbers and strings
	}
	return text
}
