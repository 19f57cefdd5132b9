package cost

import (
	"fmt"
	"time"

	"github.com/weirlimits/weir/internal/lab/report"
)

// Measured is what a table consumed, as AWS counted it.
type Measured struct {
	Table string         `json:"table"`
	From  time.Time      `json:"from"`
	To    time.Time      `json:"to"`
	Parts []MeasuredPart `json:"parts"` // the table first, then its indexes
	Bytes int64          `json:"bytes"` // of table and indexes
	// Capacity that table and indexes have now, in units per second; 0 if the table is billed on demand.
	WriteCapacity int64 `json:"write_capacity,omitempty"`
	ReadCapacity  int64 `json:"read_capacity,omitempty"`
}

// MeasuredPart is what a table without its indexes, or an index, consumed.
type MeasuredPart struct {
	Index string  `json:"index,omitempty"` // "": the table
	Write float64 `json:"write_units"`
	Read  float64 `json:"read_units"`
}

// Days returns the length of what was measured.
func (m *Measured) Days() float64 { return m.To.Sub(m.From).Hours() / 24 }

// Bill is what a measured table costs in a month at the measured pace.
type Bill struct {
	Measured Measured `json:"measured"`
	Days     float64  `json:"days"`
	Prices   Prices   `json:"prices"`
	OnDemand float64  `json:"units_on_demand_per_month"`
	Capacity float64  `json:"provisioned_per_month,omitempty"` // that the table has now
	Storage  float64  `json:"storage_per_month"`
	Month    float64  `json:"per_month"` // as the table is billed now
}

// Price returns the bill of a measured table.
func (m *Measured) Price(p Prices) *Bill {
	b := &Bill{Measured: *m, Days: m.Days(), Prices: p}
	for _, part := range m.Parts {
		b.OnDemand += b.units(part)
	}
	b.Capacity = (float64(m.WriteCapacity)*p.WriteHour + float64(m.ReadCapacity)*p.ReadHour) * p.Hours
	b.Storage = float64(m.Bytes) / 1e9 * p.Storage
	if b.Month = b.OnDemand + b.Storage; b.Capacity > 0 {
		b.Month = b.Capacity + b.Storage
	}
	return b
}

// units returns what a part's units cost on demand in a month.
func (b *Bill) units(p MeasuredPart) float64 {
	write, read, _ := b.Prices.Pace()
	return (p.Write*write + p.Read*read) / b.Days
}

// Document returns the bill for people.
func (b *Bill) Document() *report.Document {
	m, p := &b.Measured, &b.Prices
	units := report.Table{Header: []string{"EACH DAY", "RCU", "WCU", p.Currency + " A MONTH ON DEMAND"}}
	var read, write float64
	for _, part := range m.Parts {
		name := "table"
		if part.Index != "" {
			name = "index " + part.Index
		}
		read, write = read+part.Read, write+part.Write
		units.Row(name, figure(part.Read/b.Days), figure(part.Write/b.Days), amount(b.units(part)))
	}
	units.Row("total", figure(read/b.Days), figure(write/b.Days), amount(b.OnDemand))
	money := report.Table{Header: []string{p.Currency, "A MONTH"}}
	if b.Capacity > 0 {
		money.Row(fmt.Sprintf("capacity of %d WCU, %d RCU", m.WriteCapacity, m.ReadCapacity), amount(b.Capacity))
	} else {
		money.Row("units on demand", amount(b.OnDemand))
	}
	money.Row("storage", amount(b.Storage))
	money.Row("total", amount(b.Month))
	var l report.Lines
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	l.Add("measured", "units, by CloudWatch, for %s days from %s to %s; %s GB, which DynamoDB counts every six hours",
		figure(b.Days), at(m.From), at(m.To), figure(float64(m.Bytes)/1e9))
	l.Add("model", "a month of %g hours at this pace, at the prices of %s, list of %s; functions, backups, streams, "+
		"alarms and logs are not in it", p.Hours, p.Region, p.Date)
	return &report.Document{Title: "weir cost", Parts: []any{units, money, l}}
}
