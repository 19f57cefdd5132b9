package cost

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Run holds the figures of a recorded run, per request.
type Run struct {
	Requests   float64 `json:"requests"`
	Seconds    float64 `json:"seconds"`
	CallsPer   float64 `json:"calls_per_request"`
	ReadPer    float64 `json:"read_units_per_request"`
	WritePer   float64 `json:"write_units_per_request"`
	AppliedPer float64 `json:"applied_per_request"` // writes whose condition held
	Refused    float64 `json:"refused"`             // share
	Processes  float64 `json:"processes"`
	Entities   float64 `json:"entities"`
	Hits       float64 `json:"hit_ratio"` // of limit look-ups, cached for a minute; negative: unknown
}

// ReadRun reads the output of weir simulate --output json, or the file of weir load run --save.
func ReadRun(text []byte) (*Run, error) {
	var kind struct {
		Elapsed float64 `json:"elapsed_seconds"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, fmt.Errorf("read the run: %w", err)
	}
	if kind.Elapsed > 0 {
		return readLoad(text)
	}
	var in struct {
		Seconds   float64 `json:"seconds"`
		Asked     float64 `json:"asked"`
		Refused   float64 `json:"refused"`
		Calls     float64 `json:"calls"`
		InVain    float64 `json:"calls_in_vain"`
		Units     float64 `json:"write_units"`
		Reads     float64 `json:"read_units"`
		Processes float64 `json:"processes"`
		Entities  float64 `json:"entities"`
		Hits      float64 `json:"hit_ratio"`
	}
	in.Hits = -1
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("read the run: %w", err)
	}
	if in.Seconds <= 0 || in.Asked <= 0 {
		return nil, errors.New(
			"read the run: seconds or asked is missing: pass the output of weir simulate --output json, or the " +
				"file of weir load run --save",
		)
	}
	return &Run{
		Requests: in.Asked, Seconds: in.Seconds, CallsPer: in.Calls / in.Asked, ReadPer: in.Reads / in.Asked,
		WritePer:   in.Units / in.Asked,
		AppliedPer: max(0, in.Units-in.InVain) / in.Asked, Refused: in.Refused / in.Asked,
		Processes: max(1, in.Processes), Entities: max(1, in.Entities),
		Hits: in.Hits,
	}, nil
}

// readLoad reads a report of load. Its reads are lookups of limits; how many entities it had is not in it.
func readLoad(text []byte) (*Run, error) {
	type total struct {
		Total float64 `json:"total"`
	}
	var in struct {
		Elapsed float64          `json:"elapsed_seconds"`
		Calls   float64          `json:"calls"`
		Refused float64          `json:"refused"`
		Workers float64          `json:"workers"`
		Store   map[string]total `json:"store"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, fmt.Errorf("read the run: %w", err)
	}
	if _, table := in.Store["wcu"]; !table || in.Calls == 0 {
		return nil, errors.New("read the run: no DynamoDB table was written: only its cost is known")
	}
	each := func(name string) float64 { return in.Store[name].Total / in.Calls }
	return &Run{
		Requests: in.Calls, Seconds: in.Elapsed, CallsPer: each("calls"), WritePer: each("wcu"),
		AppliedPer: each("writes_applied"), Refused: in.Refused / in.Calls,
		Processes: max(1, in.Workers), Entities: 1, Hits: max(0, 1-each("reads")),
	}, nil
}

// Traffic returns t with the figures of the run filled in.
func (r *Run) Traffic(t Traffic) Traffic {
	t.Requests, t.Refused, t.Processes, t.Entities = r.Requests/r.Seconds, r.Refused, r.Processes, r.Entities
	if t.TTL == Default().TTL {
		t.Hits = r.Hits
	}
	return t
}
