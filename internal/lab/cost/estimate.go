package cost

import (
	"fmt"
	"math"

	"github.com/weirlimits/weir/store"
)

// Part is one kind of operation, with hourly figures.
type Part struct {
	Name    string  `json:"name"`
	Count   float64 `json:"per_hour"`
	Calls   float64 `json:"calls_per_hour"`
	Read    float64 `json:"read_units_per_hour"`
	Write   float64 `json:"write_units_per_hour"`
	Month   float64 `json:"per_month"` // price of its units on demand
	Formula string  `json:"formula"`
}

// Estimate is the cost of some traffic. The price list defines the length of a month.
type Estimate struct {
	Traffic    Traffic `json:"traffic"`
	Prices     Prices  `json:"prices"`
	Recorded   *Run    `json:"recorded,omitempty"` // the run that the figures of decisions come from
	HitRatio   float64 `json:"hit_ratio"`
	Parts      []Part  `json:"parts"`
	Total      Part    `json:"total"`
	PerRequest Part    `json:"per_request"`

	Money Money `json:"money"`
}

// hour is an hour in seconds.
const hour = 3600

const (
	// missUnits is the cost of looking up an entity when the limits of its resource and namespace are cached:
	// consistent reads of the entity, its limits on the resource, its default limits and the namespace's epoch.
	missUnits = 4
	// perTransaction is the number of windows of each type that all buckets of a transaction share: of resource,
	// namespace and store. Besides, each bucket has its own, and an account.
	perTransaction = 3
	// most is the number of items in a transaction.
	most = 100
	// fullBatch is the number of records that fit into the 6 MiB that Lambda passes to a function.
	fullBatch = 4000
	// toldSeconds is the interval at which a process stores its counts, in writes of toldAtOnce buckets of toldBytes
	// each.
	toldSeconds, toldAtOnce, toldBytes = 5, 200, 30
	// epochUnits is the cost of a poll: the epochs of the list of namespaces and of one namespace.
	epochUnits = 2
	// heartSeconds is the interval of a process's heartbeat, which takes heartUnits, if all together write at most
	// heartsASecond. At the same interval, each process reads how many there are, and one of them all heartbeats, of
	// heartBytes each, to write that.
	heartSeconds, heartUnits, heartBytes, heartsASecond = 5, 4, 160, 100
	// readBytes is the size that one read unit covers.
	readBytes = 4096
	// The sizes in bytes of the items of a bucket, a window and an account, and the billed overhead of each item.
	bucketBytes, windowBytes, accountBytes, itemBytes = 400, 150, 250, 100
	// The number of windows kept of an entity that is always active: hours for 90 days, days for two years, and 24
	// months.
	hoursKept, daysKept, monthsKept = 90 * 24, 2 * 365, 24
)

// Of estimates the cost of the traffic at these prices. run, if not nil, provides the measured cost of decisions.
func (t Traffic) Of(p Prices, run *Run) (*Estimate, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	e := &Estimate{Traffic: t, Prices: p, Recorded: run, HitRatio: t.hits()}
	records := e.decisions()
	e.lookups()
	e.hand()
	if t.Booking != NoBooking {
		e.booking(records)
	}
	e.Total.Name = "all"
	for _, part := range e.Parts {
		e.Total.Calls += part.Calls
		e.Total.Read += part.Read
		e.Total.Write += part.Write
		e.Total.Month += part.Month
	}
	e.Total.Count = t.Requests * hour
	n := e.Total.Count
	e.PerRequest = Part{
		Name: "a request", Count: 1, Calls: e.Total.Calls / n, Read: e.Total.Read / n, Write: e.Total.Write / n,
	}
	e.Money = e.money()
	return e, nil
}

// add adds a part with n operations an hour.
func (e *Estimate) add(name string, n float64, calls, read, write float64, formula string, args ...any) {
	if n > 0 {
		p := Part{Name: name, Count: n, Calls: n * calls, Read: n * read, Write: n * write}
		p.Month = (p.Read*e.Prices.Read + p.Write*e.Prices.Write) / 1e6 * e.Prices.Hours
		p.Formula = fmt.Sprintf(formula, args...)
		e.Parts = append(e.Parts, p)
	}
}

func (e *Estimate) op(name, what string, n float64, formula string, args ...any) {
	op := Of(what)
	e.add(
		name, n, float64(op.Calls), op.Read, op.Write,
		"("+formula+fmt.Sprintf(") × %d call, %g RCU, %g WCU", op.Calls, op.Read, op.Write), args...,
	)
}

// decisions adds the writes for requests. It returns the number of applied writes an hour, which appear in the stream.
func (e *Estimate) decisions() (records float64) {
	t := &e.Traffic
	if r := e.Recorded; r != nil {
		n := t.Requests * hour
		e.add(
			"decisions, as recorded", n, r.CallsPer, r.ReadPer, r.WritePer,
			"%g requests × the run's figures per request", n,
		)
		return n * r.AppliedPer
	}
	n := t.Requests * hour
	buckets := t.charged()
	admitted := n * (1 - t.Refused)
	writes := admitted * buckets * (1 - t.Ahead) / t.PerWrite
	e.op(
		"debits", "acquire, warm", writes,
		"%g requests × (1−%g refused) × %g buckets × (1−%g prefetched) ÷ %g callers a write",
		n, t.Refused, buckets, t.Ahead, t.PerWrite)
	made := writes * t.New
	fresh, warm := Of("acquire, brand-new bucket"), Of("acquire, warm")
	e.add(
		"  extra for new buckets", made, float64(fresh.Calls-warm.Calls), 0, fresh.Write-warm.Write,
		"%g writes × %g new × %g WCU more",
		writes, t.New, fresh.Write-warm.Write)
	again, wrong := writes*t.InVain, Of("wrong guess")
	e.add("  extra for repeated writes", again, float64(wrong.Calls-warm.Calls), 0, wrong.Write-warm.Write,
		"%g writes × %g wrong guesses × 1 call, 1 WCU: a failed condition is charged", writes, t.InVain)
	adjusts := admitted * t.Adjusts * buckets / t.PerWrite
	e.op(
		"adjustments and rollbacks", "adjust", adjusts, "%g admitted × %g × %g buckets ÷ %g callers a write",
		admitted, t.Adjusts, buckets, t.PerWrite,
	)
	refused := n * t.Refused
	e.op(
		"refusals", "refused, first time", refused*(1-t.FromMem)*(1-t.ByParent),
		"%g refused × (1−%g from memory) × (1−%g by a parent)",
		refused, t.FromMem, t.ByParent)
	e.op(
		"refusals by a parent", "cascade, the parent refuses", refused*(1-t.FromMem)*t.ByParent,
		"%g refused × (1−%g from memory) × %g",
		refused, t.FromMem, t.ByParent)
	e.op("refusals from memory", "refused again", refused*t.FromMem, "%g refused × %g", refused, t.FromMem)
	return writes + adjusts + 2*refused*(1-t.FromMem)*t.ByParent
}

// lookups adds the reads of limits.
func (e *Estimate) lookups() {
	t := &e.Traffic
	n := t.Requests * hour
	levels, each := t.levels(), missUnits+t.Groups // the entity's limits on each group and the total
	if t.Hits < 0 && t.TTL == 0 {
		e.add(
			"limit lookups", n*levels, 1, each+2, 0, "%g requests × %g levels × %g RCU, without a cache", n,
			levels, each+2,
		)
		return
	}
	misses := n * levels * (1 - e.HitRatio)
	e.add(
		"limit lookups", misses, 1, each, 0, "%g requests × %g levels × (1−%.4g hits) × 1 call, %g RCU",
		n, levels, e.HitRatio, each,
	)
	if t.TTL > 0 { // the namespace by its name, its settings and a resource's limits
		renewals := t.Processes * hour / t.TTL
		e.add("namespace lookups", renewals, 1, 4, 0, "%g processes ÷ %gs × 3600 × 1 call, 4 RCU",
			t.Processes, t.TTL)
	}
}

// hand adds the counts and heartbeats that processes write.
func (e *Estimate) hand() {
	t := &e.Traffic
	told := t.Requests * (t.Refused + (1-t.Refused)*t.Adjusts) / t.Processes
	handed := told / (1 + told*toldSeconds)
	if handed > 0 {
		buckets := Distinct(told/handed, t.buckets())
		calls, units := math.Ceil(buckets/toldAtOnce), math.Ceil(buckets*toldBytes/1024)
		e.add("refusal and adjustment counts", t.Processes*hour*handed, calls, 0, units,
			"%g processes × 3600 × %.4g/s ÷ (1 + %.4g/s × %ds) × %.4g WCU for %.4g buckets",
			t.Processes, told, told, toldSeconds, units, buckets)
	}
	if t.Poll > 0 {
		e.add("polls for changes", t.Processes*hour/t.Poll, 1, epochUnits, 0,
			"%g processes ÷ %gs × 3600 × 1 call, %d RCU", t.Processes, t.Poll, epochUnits)
	}
	if t.Heartbeat {
		every := max(heartSeconds, t.Processes/heartsASecond)
		e.add(
			"heartbeats", (t.Processes+1)*hour/every, 1, 0, heartUnits,
			"(%g processes + the count) × 3600 ÷ %gs × %d WCU",
			t.Processes, every, heartUnits)
		list := 1 + math.Ceil(t.Processes*heartBytes/readBytes)
		e.add("process counts", hour/every, t.Processes+1, 3*t.Processes-1+list, 0,
			"3600 ÷ %gs × (%g processes × 3 RCU - 1 + %g RCU to list %g records of %d bytes)",
			every, t.Processes, list, t.Processes, heartBytes)
	}
}

// booking adds the cost of booking usage from so many records an hour: the accounts of buckets and, in the same
// transactions, windows of each type.
func (e *Estimate) booking(records float64) {
	t := &e.Traffic
	perShard := records / hour / t.Shards
	if perShard == 0 {
		return
	}
	size := t.Batch
	if t.Booking == Function {
		size = min(size, fullBatch)
	}
	// A batch is sent when it is full, or has waited long enough since its first record.
	batches := max(perShard/size, perShard/(1+perShard*t.BatchSeconds)) * t.Shards * hour
	n := records / batches
	buckets := t.buckets() / t.Shards
	distinct := Distinct(n, buckets)
	windows := t.windows()
	atOnce := (most - perTransaction*len(windows)) / (1 + len(windows))
	transactions := math.Ceil(distinct / float64(atOnce))
	e.add(
		booked, batches, math.Ceil(distinct/100)+transactions, distinct, 2*distinct,
		"%.4g batches of %.4g records of %.4g buckets, each with an account of 2 WCU, in %g transactions",
		batches, n, distinct, transactions)
	for _, w := range windows {
		e.add(
			"  "+string(w)+" windows", batches, 0, 0, 2*(distinct+perTransaction*transactions),
			"%.4g batches × 2 WCU × (%.4g buckets + %d sums × %g transactions)",
			batches, distinct, perTransaction, transactions)
	}
	if t.Booking == Process {
		e.op("  stream checkpoints", "adjust", batches, "%.4g batches", batches)
	}
}

// booked is the name of the part with the batches of records.
const booked = "stream batches booked"

// Distinct returns how many different buckets a batch of n records touches on average, if they are evenly distributed.
func Distinct(n, buckets float64) float64 {
	if buckets <= 1 {
		return 1
	}
	return max(1, min(n, buckets*-math.Expm1(n*math.Log1p(-1/buckets))))
}

// storage estimates the stored data, in GB.
func (e *Estimate) storage() (gb float64, formula string) {
	t := &e.Traffic
	if t.StorageGB >= 0 {
		return t.StorageGB, "as given"
	}
	b := t.buckets()
	bytes := b * (bucketBytes + itemBytes)
	formula = fmt.Sprintf("%g buckets × %d bytes", b, bucketBytes+itemBytes)
	if t.Booking != NoBooking {
		rate := t.Requests * (1 - t.Refused) / b
		active := func(sec float64) float64 { return -math.Expm1(-rate * sec) }
		windows := 0.
		for _, w := range t.windows() {
			windows += map[store.Window]float64{
				store.Hourly: hoursKept * active(hour), store.Daily: daysKept * active(24*hour),
				store.Monthly: monthsKept,
			}[w]
		}
		const each = windowBytes + itemBytes
		bytes += b * (windows*each + accountBytes + itemBytes)
		formula += fmt.Sprintf(" + %.4g windows per bucket × %d bytes, after two years", windows, each)
	}
	return bytes / 1e9, formula
}
