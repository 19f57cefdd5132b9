package governor

import (
	"errors"
	"fmt"
	"time"
)

// ErrClosed reports that the governor was closed, and no longer has a share of its fleet's limits.
var ErrClosed = errors.New("governor closed")

// WaitError reports that a call did not begin, and consumed nothing, because its budget would not allow it in time.
type WaitError struct {
	Table, Index string // "" if the budget is the account's, or the table's
	Direction    Direction
	// Wait is how long the call would have had to wait; 0 if it gave up while waiting.
	Wait time.Duration
	// MaxWait is that of the [Config] if it was exceeded, otherwise 0.
	MaxWait time.Duration
	// Never is set if the call costs more than its budget, even a full one, allows within MaxWait: calling again is of
	// no use.
	Never bool
	// Err is any other cause: context.DeadlineExceeded, also if the deadline had not passed yet but would have; the
	// context's error; [ErrClosed]; or nil.
	Err error
}

// Error names the budget, and why the call did not begin.
func (e *WaitError) Error() string {
	what := e.Direction.String() + " budget of " + subject(e.Table, e.Index)
	switch {
	case e.Err != nil && e.Wait > 0:
		return fmt.Sprintf("wait %v for the %s: %v", e.Wait.Round(time.Millisecond), what, e.Err)
	case e.Err != nil:
		return fmt.Sprintf("wait for the %s: %v", what, e.Err)
	}
	return fmt.Sprintf(
		"wait %v for the %s: longer than %v: raise the budget or MaxWait", e.Wait.Round(time.Millisecond), what,
		e.MaxWait,
	)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

func subject(table, index string) string {
	switch {
	case index != "":
		return "index " + table + "/" + index
	case table != "":
		return "table " + table
	}
	return "the account"
}
