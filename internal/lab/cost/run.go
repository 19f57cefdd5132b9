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

// ReadRun reads the output of weir simulate --output json.
func ReadRun(text []byte) (*Run, error) {
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
			"read the run: seconds or asked is missing: pass the output of weir simulate --output json",
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

// Traffic returns t with the figures of the run filled in.
func (r *Run) Traffic(t Traffic) Traffic {
	t.Requests, t.Refused, t.Processes, t.Entities = r.Requests/r.Seconds, r.Refused, r.Processes, r.Entities
	if t.TTL == Default().TTL {
		t.Hits = r.Hits
	}
	return t
}
