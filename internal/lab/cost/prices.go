package cost

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Prices holds a region's list prices, before taxes, discounts and free tiers.
type Prices struct {
	Region    string  `json:"region"`
	Date      string  `json:"date"` // of the list, as 2024-11-01
	Currency  string  `json:"currency"`
	Hours     float64 `json:"hours_per_month"`
	Write     float64 `json:"write_million"` // on demand
	Read      float64 `json:"read_million"`
	WriteHour float64 `json:"write_unit_hour"` // provisioned
	ReadHour  float64 `json:"read_unit_hour"`
	// Reserved for a year, in hundreds of units: upfront and hourly charges together. The defaults, 150 USD and 0.0128
	// an hour for a hundred of writes, 30 and 0.0025 for reads, were not read from AWS's list: they agree with the
	// discount of up to 54 % that is stated for a year.
	ReservedWrite float64 `json:"reserved_write_unit_hour"`
	ReservedRead  float64 `json:"reserved_read_unit_hour"`
	Storage       float64 `json:"storage_gb_month"`
	Backup        float64 `json:"backup_gb_month"` // point-in-time recovery
	Stream        float64 `json:"stream_read_million"`
	LambdaRequest float64 `json:"lambda_request_million"`
	LambdaSecond  float64 `json:"lambda_gb_second"` // Arm
}

// DefaultPrices is the default price list, as JSON.
//
//go:embed prices.json
var DefaultPrices []byte

// ReadPrices reads a price list. A price that is missing, negative or unknown is an error.
func ReadPrices(text []byte) (Prices, error) {
	var p Prices
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return p, fmt.Errorf("read prices: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return p, errors.New("read prices: unexpected text after the JSON object")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return p, fmt.Errorf("read prices: %w", err)
	}
	if _, err := time.Parse(time.DateOnly, p.Date); err != nil {
		return p, fmt.Errorf("read prices: date %q must have the form 2024-11-01", p.Date)
	}
	for _, f := range []struct {
		name string
		v    float64
	}{
		{"hours_per_month", p.Hours - 1},
		{"write_million", p.Write},
		{"read_million", p.Read},
		{"write_unit_hour", p.WriteHour},
		{"read_unit_hour", p.ReadHour},
		{"reserved_write_unit_hour", p.ReservedWrite},
		{"reserved_read_unit_hour", p.ReservedRead},
		{"storage_gb_month", p.Storage},
		{"backup_gb_month", p.Backup},
		{"stream_read_million", p.Stream},
		{"lambda_request_million", p.LambdaRequest},
		{"lambda_gb_second", p.LambdaSecond},
	} {
		if given[f.name] == nil {
			return p, fmt.Errorf("read prices: %s is missing", f.name)
		}
		if f.v < 0 {
			return p, fmt.Errorf("read prices: %s is too small", f.name)
		}
	}
	if p.Region == "" || p.Currency == "" {
		return p, errors.New("read prices: region and currency must not be empty")
	}
	return p, nil
}

// Pace returns what a write unit, a read unit and a GB-second of a function cost on demand, in a month of which every
// day has one.
func (p *Prices) Pace() (write, read, second float64) {
	days := p.Hours / 24
	return p.Write / 1e6 * days, p.Read / 1e6 * days, p.LambdaSecond * days
}

// BreakEven returns the average utilization at which provisioned write capacity costs as much as the same writes on
// demand, or 0 if writes on demand are free.
func (p *Prices) BreakEven() float64 {
	if p.Write == 0 {
		return 0
	}
	return p.WriteHour / (3600 * p.Write / 1e6)
}
