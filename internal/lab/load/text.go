package load

import (
	"fmt"
	"strconv"
	"time"
)

// Headline describes the run in one line.
func (r *Report) Headline() string {
	text := fmt.Sprintf("%s, seed %d, %s loop", r.Scenario, r.Seed, r.Loop)
	if r.Shape != "" {
		text += ", shape " + r.Shape
	}
	if r.Loop == Closed {
		text += ", " + strconv.Itoa(r.Users) + " users"
	}
	if r.Workers > 0 {
		text += ", " + strconv.Itoa(r.Workers) + " workers"
	}
	return text + ", on " + r.Target + " for " + time.Duration(
		r.Elapsed*float64(time.Second),
	).Round(100*time.Millisecond).String()
}

// Verdict says that the runner was overloaded, and why; "" if it was not.
func (r *Report) Verdict() string {
	if !r.Overloaded {
		return ""
	}
	return "overloaded: the runner could not keep its schedule: " + r.Why
}

// Cells are the change's cells in a table: the name, A, B, and the difference.
func (c *Change) Cells() []string {
	diff := "="
	switch c.A {
	case c.B:
	case 0:
		diff = "new"
	default:
		diff = fmt.Sprintf("%+.1f %%", c.Percent)
	}
	what := c.What
	if c.Unit != "" {
		what += " " + c.Unit
	}
	return []string{what, figure(c.A), figure(c.B), diff}
}

func (t Times) cells() []string {
	return []string{figure(t.P50), figure(t.P90), figure(t.P99), figure(t.P999), figure(t.Max)}
}

// figure formats a number to three digits; whole numbers are shown in full.
func figure(x float64) string {
	switch {
	case x == float64(int64(x)) || x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x >= 1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }

func percent(n, all uint64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%s (%.2f %%)", count(n), share(n, all))
}
