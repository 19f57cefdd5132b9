package traffic

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Span is a duration, written like 1m30s.
type Span time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 30s", text)
	}
	*s = Span(d)
	return nil
}

// Range is a number, or a range of equally likely numbers: 800, 200..2000, or for times 0.5s..2s, held in seconds.
type Range struct{ From, To float64 }

// MarshalText implements [encoding.TextMarshaler].
func (r Range) MarshalText() ([]byte, error) {
	from, to := strconv.FormatFloat(r.From, 'f', -1, 64), strconv.FormatFloat(r.To, 'f', -1, 64)
	if from == to {
		return []byte(from), nil
	}
	return []byte(from + ".." + to), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Range) UnmarshalText(text []byte) (err error) {
	from, to, two := strings.Cut(string(text), "..")
	if !two {
		to = from
	}
	if r.From, err = number(from); err == nil {
		r.To, err = number(to)
	}
	if err != nil || r.To < r.From {
		return fmt.Errorf("%q is neither a number nor a range such as 200..2000 or 0.5s..2s", text)
	}
	return nil
}

func number(text string) (float64, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, nil
	}
	d, err := time.ParseDuration(text)
	return d.Seconds(), err
}

func (r Range) mean() float64 { return (r.From + r.To) / 2 }

// wait draws a time.
func (r Range) wait(rnd *rand.Rand) time.Duration {
	return time.Duration((r.From + (r.To-r.From)*rnd.Float64()) * float64(time.Second))
}

// whole draws a whole number, including both ends.
func (r Range) whole(rnd *rand.Rand) int64 {
	from, to := int64(r.From), int64(r.To)
	if from == to {
		return from
	}
	return from + rnd.Int64N(to-from+1)
}
