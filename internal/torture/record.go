package torture

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/torture/reckon"
)

// Op is what a caller did.
type Op string

// What callers do.
const (
	OpTake    Op = "take"    // decides
	OpAdjust  Op = "adjust"  // of what a lease holds, or a settle
	OpReturn  Op = "return"  // of a lease, by whoever took it
	OpHold    Op = "hold"    // a lease leaves the process; nothing is called
	OpRelease Op = "release" // of a held lease, by anybody
	OpLook    Op = "look"
)

// Result is what a caller was told. Empty: nothing, for the process was killed.
type Result string

// What callers are told.
const (
	Admitted Result = "admitted"
	Refused  Result = "refused"
	Applied  Result = "applied"
	Before   Result = "before"  // by somebody else, as a lease that was given back already says
	Unknown  Result = "unknown" // the answer was lost
	Twice    Result = "twice"   // a lease let itself be given back again
)

// Record is one call and its answer, a line of a history.
type Record struct {
	Round   int `json:"round"`
	Process int `json:"process"` // 0 is who prepares and looks
	Life    int `json:"life"`    // how often the process had been killed
	Caller  int `json:"caller"`
	N       int `json:"n"` // of the caller's calls

	Op      Op         `json:"op"`
	Charges []Charge   `json:"charges,omitempty"`
	Lease   string     `json:"lease,omitempty"`
	Held    *weir.Held `json:"held,omitempty"`

	Asked  int64     `json:"asked"` // nanoseconds since 1970
	Told   int64     `json:"told,omitempty"`
	Result Result    `json:"result,omitempty"`
	At     time.Time `json:"at,omitzero"` // as the store told the time
	Levels []int64   `json:"levels,omitempty"`
	Err    string    `json:"err,omitempty"`
}

// Charge is what a call does to one bucket, in millitokens in the order of the limits: negative gives back.
type Charge struct {
	Entity  string                  `json:"entity"`
	Amounts [reckon.MaxLimits]int64 `json:"amounts"`
	Force   bool                    `json:"force,omitempty"`
}

// known reports whether it is known what became of a call.
func (r *Record) known() bool { return r.Result != "" && r.Result != Unknown }

// of returns what a call asked of an entity's bucket.
func (r *Record) of(entity string) (Charge, bool) {
	for _, c := range r.Charges {
		if c.Entity == entity {
			return c, true
		}
	}
	return Charge{}, false
}

// String is one line for people.
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
	result := r.Result
	if result == "" {
		result = "killed"
	}
	fmt.Fprintf(&b, " → %s", result)
	if !r.At.IsZero() {
		fmt.Fprintf(&b, " at %s", r.At.Format("05.000000000"))
	}
	for i, lv := range r.Levels {
		fmt.Fprintf(&b, ", %s of %s left", millis(reckon.Room(orderLimits[i], lv, r.At)), limitNames[i])
	}
	return b.String()
}

// millis prints millitokens as tokens.
func millis(n int64) string {
	s := fmt.Sprintf("%.3f", float64(n)/1000)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
