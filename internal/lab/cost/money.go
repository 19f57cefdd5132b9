package cost

import (
	"fmt"
	"math"
)

// Item is a line of a bill.
type Item struct {
	Name    string  `json:"name"`
	Hour    float64 `json:"per_hour"`
	Month   float64 `json:"per_month"`
	Formula string  `json:"formula"`
}

// Money is a bill, in the price list's currency.
type Money struct {
	Items      []Item  `json:"items"` // on demand
	Hour       float64 `json:"per_hour"`
	Month      float64 `json:"per_month"`
	PerMillion float64 `json:"per_million_requests"`
	// Provisioned is the whole bill with capacity provisioned for the busiest second, Following with capacity that
	// follows the load. Both include the least that the table and each of its indexes must have.
	Provisioned   float64 `json:"provisioned_per_month"`
	Following     float64 `json:"autoscaled_per_month"`
	WriteCapacity float64 `json:"write_capacity"` // of Provisioned, units per second of table and indexes
	ReadCapacity  float64 `json:"read_capacity"`
	// Reserved is Provisioned with as much of it as possible reserved for a year, in hundreds of units.
	Reserved Reserved `json:"reserved"`
	// BreakEven is the average utilization at which provisioned capacity costs as much as on demand. BreakEvenPeak is
	// the peak up to which provisioned is cheaper, at the target utilization.
	BreakEven     float64 `json:"break_even_use"`
	BreakEvenPeak float64 `json:"break_even_peak"`
	// Invented is what requests for Names names a second that nobody has used before cost in a month, in addition.
	// InventedKnown is the same in a namespace that takes requests for known entities only.
	Names         float64 `json:"invented_names_per_second"`
	Invented      float64 `json:"invented_names_per_month"`
	InventedKnown float64 `json:"invented_names_refused_per_month"`
}

// Reserved is the bill with reserved capacity, and how much of each is.
type Reserved struct {
	Month float64 `json:"per_month"`
	Write float64 `json:"write_capacity"`
	Read  float64 `json:"read_capacity"`
}

const (
	names = 1000 // invented a second
	// namesRead is how many names without an entity a process looks up each second in a namespace that takes requests
	// for known entities only.
	namesRead = 100
	// nameSeconds is how long the bucket of a name is stored at least: a day longer than until it is full.
	nameSeconds = 24 * hour
)

// invented adds what invented names cost: each is looked up and makes a bucket.
func (m *Money) invented(t *Traffic, p *Prices) {
	read, write := missUnits*p.Read/1e6, Of("acquire, brand-new bucket").Write*p.Write/1e6
	month := p.Hours * hour
	stored := names * nameSeconds * (bucketBytes + itemBytes) / 1e9 * p.Storage
	m.Names = names
	m.Invented = names*month*(read+write) + stored
	m.InventedKnown = min(names, namesRead*t.Processes) * month * read
}

func (e *Estimate) money() Money {
	t, p := &e.Traffic, &e.Prices
	var m Money
	add := func(name string, hour float64, formula string, args ...any) {
		m.Items = append(m.Items, Item{name, hour, hour * p.Hours, fmt.Sprintf(formula, args...)})
		m.Hour += hour
	}
	capacity := e.Total.Write*p.Write/1e6 + e.Total.Read*p.Read/1e6
	add("writes on demand", e.Total.Write*p.Write/1e6, "%.6g WCU an hour × %g a million", e.Total.Write, p.Write)
	add("reads on demand", e.Total.Read*p.Read/1e6, "%.6g RCU an hour × %g a million", e.Total.Read, p.Read)
	gb, formula := e.storage()
	add("storage", gb*p.Storage/p.Hours, "%.4g GB (%s) × %g a month", gb, formula, p.Storage)
	if t.Backup {
		add("backup", gb*p.Backup/p.Hours, "%.4g GB × %g a month", gb, p.Backup)
	}
	for _, part := range e.Parts {
		if part.Name != booked {
			continue
		}
		switch t.Booking {
		case Function:
			add("stream reads", 0, "none: stream reads by Lambda are free")
			add(
				"function calls", part.Count*p.LambdaRequest/1e6, "%.6g batches an hour × %g a million", part.Count,
				p.LambdaRequest,
			)
			add(
				"function time", part.Count*t.InvokeMillis/1000*t.MemoryGB*p.LambdaSecond,
				"%.6g batches an hour × %g ms × %g GB × %g a GB-second",
				part.Count, t.InvokeMillis, t.MemoryGB, p.LambdaSecond)
		case Process:
			add(
				"stream reads", t.Shards*hour/max(t.BatchSeconds, 1)*p.Stream/1e6,
				"%g shards × a read every %gs × %g a million", t.Shards, max(t.BatchSeconds, 1), p.Stream,
			)
		case NoBooking:
		}
	}
	m.Month = m.Hour * p.Hours
	m.invented(t, p)
	m.PerMillion = m.Hour / e.Total.Count * 1e6

	m.provision(e, m.Hour-capacity)
	if m.BreakEven = p.BreakEven(); m.BreakEven > 0 {
		m.BreakEvenPeak = t.Target / m.BreakEven
	}
	return m
}

const (
	// indexes is the number of the table's indexes. Decisions hardly use them, so each has the least capacity.
	indexes = 3
	// reservable is the number of units that are reserved together.
	reservable = 100
)

// provision sets what provisioned capacity costs, beside the rest of the bill.
func (m *Money) provision(e *Estimate, rest float64) {
	t, p := &e.Traffic, &e.Prices
	units := func(perHour float64) float64 {
		return max(t.Floor, math.Ceil(perHour/hour*t.Peak/t.Target)) + indexes*t.Floor
	}
	m.WriteCapacity, m.ReadCapacity = units(e.Total.Write), units(e.Total.Read)
	m.Provisioned = (rest + m.WriteCapacity*p.WriteHour + m.ReadCapacity*p.ReadHour) * p.Hours
	r := &m.Reserved
	r.Write = math.Floor(m.WriteCapacity/reservable) * reservable
	r.Read = math.Floor(m.ReadCapacity/reservable) * reservable
	saved := r.Write*(p.WriteHour-p.ReservedWrite) + r.Read*(p.ReadHour-p.ReservedRead)
	r.Month = m.Provisioned - saved*p.Hours
	follows := func(perHour float64) float64 { return max(t.Floor, perHour/hour/t.Target) + indexes*t.Floor }
	m.Following = (rest + follows(e.Total.Write)*p.WriteHour + follows(e.Total.Read)*p.ReadHour) * p.Hours
}
