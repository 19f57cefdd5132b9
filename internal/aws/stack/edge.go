package stack

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Rate is the maximum request rate of one entity, from a limit that counts requests.
type Rate struct {
	Amount int64 // requests per Period
	Period time.Duration
	Burst  int64 // requests at once
}

// The range of a WAF rate.
const (
	leastRate = 10
	mostRate  = 2_000_000_000
)

// SizeEdge adds the sizes of a floor to its values: headroom percent of what the most generous of the rates allows.
func SizeEdge(given Values, rates []Rate, headroom int) error {
	t, err := Load(Edge)
	if err != nil {
		return err
	}
	seconds, err := strconv.Atoi(t.Full(given)["Window"])
	switch {
	case err != nil:
		return fmt.Errorf("--window: %w", err)
	case len(rates) == 0:
		return errors.New("--limit: the manifests declare no such limit on requests")
	case headroom < 100 || headroom > 10_000:
		return fmt.Errorf("--headroom %d: must be from 100 to 10000 percent: below 100, "+
			"the floor would refuse what the limit allows", headroom)
	}
	window, second, burst := 0.0, 0.0, 1.0
	for _, r := range rates {
		if r.Amount <= 0 || r.Period <= 0 {
			return fmt.Errorf("a limit of %d per %s: must be positive", r.Amount, r.Period)
		}
		rate := float64(r.Amount) / r.Period.Seconds()
		window = max(window, float64(r.Burst)+rate*float64(seconds))
		second = max(second, rate)
		burst = max(burst, float64(r.Burst), math.Ceil(rate))
	}
	of := func(v float64) float64 { return math.Ceil(v * float64(headroom) / 100) }
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	given["FloorLimit"] = text(min(mostRate, max(leastRate, of(window))))
	given["PlanRate"] = text(max(math.Ceil(second*float64(headroom))/100, 0.01))
	given["PlanBurst"] = text(min(math.MaxInt32, of(burst)))
	return nil
}
