package metrics

import (
	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/outage"
)

// backstop adds the metrics of decisions made while the store does not answer.
func (s *Scrape) backstop(st outage.Stats) {
	var states []point[float64]
	for _, state := range []string{"closed", "open", "half-open"} {
		p := point[float64]{labels: []string{"state", state}}
		if st.Breaker == state || st.Breaker == "" && state == "closed" {
			p.v = 1
		}
		states = append(states, p)
	}
	s.gauge("weir.breaker.state", "1 for the current state: closed, the store is asked; open, it is not; half-open, "+
		"one call probes it.", states...)
	s.count("weir.breaker.openings", "How often the breaker opened.", point[int64]{v: int64(st.Openings)})
	s.count("weir.degraded.decisions", "Decisions made without the store, whatever the outcome, by the reason.",
		point[int64]{int64(st.TimedOut), []string{"cause", string(weir.CauseTimeout)}},
		point[int64]{int64(st.Failed), []string{"cause", string(weir.CauseError)}},
		point[int64]{int64(st.NotCalled), []string{"cause", string(weir.CauseOpen)}})
	s.gauge("weir.instances", "Servers that are believed to share the limits while the store does not answer.",
		point[float64]{v: float64(st.Instances)})
	s.gauge("weir.local.shares", "Buckets whose local share this server keeps.", point[float64]{v: float64(st.Shares)})
	s.count("weir.local.admitted.tokens", "Tokens admitted from local shares.", point[int64]{v: int64(st.Admitted)})
	s.count("weir.local.refusals", "Requests that local shares refused.", point[int64]{v: int64(st.Refused)})
	s.gauge("weir.local.owing", "Buckets whose local admissions have yet to be charged to the store.",
		point[float64]{v: float64(st.Owing)})
	s.count("weir.local.charged.tokens", "Tokens admitted locally and charged to the store afterwards.",
		point[int64]{v: int64(st.Charged)})
	s.count("weir.local.lost.tokens", "Tokens admitted locally that will never be charged, for lack of room or "+
		"because the store refuses.", point[int64]{v: int64(st.Lost)})
}
