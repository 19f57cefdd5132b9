package torture

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/storetest/reckon"
)

// Op is a caller's operation.
type Op string

// Operations.
const (
	OpTake    Op = "take"    // decides
	OpBeside  Op = "beside"  // decides for the neighbour, while the limiter does not call the store for others
	OpAdjust  Op = "adjust"  // adjusts what a lease holds, or settles
	OpReturn  Op = "return"  // returns a lease, by the caller that took it
	OpHold    Op = "hold"    // lets a lease leave its process; makes no call
	OpRelease Op = "release" // returns a held lease, by any process
	OpLook    Op = "look"
)

// Result is the answer to a caller. It is empty if the process was killed before the answer.
type Result string

// Results.
const (
	Admitted Result = "admitted"
	Refused  Result = "refused"
	Applied  Result = "applied"
	Before   Result = "before"   // already returned by another caller
	Unknown  Result = "unknown"  // the answer was lost
	Twice    Result = "twice"    // a lease could be returned a second time
	KeptOut  Result = "kept out" // the limiter did not call the store, which answers
)

// Record is one call and its answer, a line of a history.
type Record struct {
	Round   int `json:"round"`
	Process int `json:"process"` // 0 is the master, which prepares and looks
	Life    int `json:"life"`    // how often the process had been killed
	Caller  int `json:"caller"`
	N       int `json:"n"` // sequence number of the caller's calls

	Op      Op               `json:"op"`
	Charges []Charge         `json:"charges,omitempty"`
	Lease   string           `json:"lease,omitempty"`
	Held    *weir.LeaseToken `json:"held,omitempty"`

	Asked  int64     `json:"asked"` // nanoseconds since 1970
	Told   int64     `json:"told,omitempty"`
	Result Result    `json:"result,omitempty"`
	At     time.Time `json:"at,omitzero"` // the store's time
	Levels []int64   `json:"levels,omitempty"`
	Err    string    `json:"err,omitempty"`
}

// Charge is what a call does to one bucket, in millitokens in the order of the limits; negative amounts are returns.
type Charge struct {
	Entity  string                  `json:"entity"`
	Amounts [reckon.MaxLimits]int64 `json:"amounts"`
	Force   bool                    `json:"force,omitempty"`
}

// known reports whether a call's outcome is known.
func (r *Record) known() bool { return r.Result != "" && r.Result != Unknown && r.Result != KeptOut }

// of returns a call's charge to an entity's bucket.
func (r *Record) of(entity string) (Charge, bool) {
	for _, c := range r.Charges {
		if c.Entity == entity {
			return c, true
		}
	}
	return Charge{}, false
}

// String formats the record as one readable line.
func (r *Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s process %d", time.Unix(0, r.Asked).UTC().Format("05.000000"), r.Process)
	if r.Life > 0 {
		fmt.Fprintf(&b, ".%d", r.Life)
	}
	fmt.Fprintf(&b, " caller %d: %s", r.Caller, r.Op)
	for _, c := range r.Charges {
		fmt.Fprintf(&b, " %s", c.Entity)
		for i, n := range c.Amounts {
			fmt.Fprintf(&b, " %s %s", limitNames[i], millis(n))
		}
		if c.Force {
			b.WriteString(" forced")
		}
	}
	if r.Lease != "" {
		fmt.Fprintf(&b, " (%s)", r.Lease)
	}
	fmt.Fprintf(&b, " → %s", cmp.Or(r.Result, "killed"))
	if !r.At.IsZero() {
		fmt.Fprintf(&b, " at %s", r.At.Format("05.000000000"))
	}
	for i, lv := range r.Levels {
		fmt.Fprintf(&b, ", %s of %s left", millis(reckon.Room(orderLimits[i], lv, r.At)), limitNames[i])
	}
	return b.String()
}

// millis formats millitokens as tokens.
func millis(n int64) string {
	s := fmt.Sprintf("%.3f", float64(n)/1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
