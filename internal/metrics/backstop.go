package metrics

import "github.com/weirlimits/weir"

// backstop adds what happens while the store does not answer.
func (s *scrape) backstop(st weir.BackstopStats) {
	var states []point[float64]
	for _, state := range []string{"closed", "open", "half-open"} {
		p := point[float64]{labels: []string{"state", state}}
		if st.Breaker == state || st.Breaker == "" && state == "closed" {
			p.v = 1
		}
		states = append(states, p)
	}
	s.gauge("weir.breaker.state", "1 for the state: closed, the store is asked; open, it is not; half-open, one call finds out.", states...)
	s.count("weir.breaker.openings", "How often the store was not asked any more.", point[int64]{v: int64(st.Openings)})
	s.count("weir.degraded.decisions", "Decisions without the store, whatever they came to, by why it did not make them.",
		point[int64]{int64(st.TimedOut), []string{"cause", string(weir.CauseTimeout)}},
		point[int64]{int64(st.Failed), []string{"cause", string(weir.CauseError)}},
		point[int64]{int64(st.NotAsked), []string{"cause", string(weir.CauseOpen)}})
	s.gauge("weir.instances", "How many servers are believed to share the limits while the store does not answer.", point[float64]{v: float64(st.Instances)})
	s.gauge("weir.local.shares", "Buckets of which this server keeps its share.", point[float64]{v: float64(st.Shares)})
	s.count("weir.local.admitted.tokens", "Tokens that were admitted from local shares.", point[int64]{v: int64(st.Admitted)})
	s.count("weir.local.refusals", "Requests that local shares refused.", point[int64]{v: int64(st.Refused)})
	s.gauge("weir.local.owing", "Buckets whose local admissions are still to be charged to the store.", point[float64]{v: float64(st.Owing)})
	s.count("weir.local.charged.tokens", "Tokens that were admitted locally and charged to the store afterwards.", point[int64]{v: int64(st.Charged)})
	s.count("weir.local.lost.tokens", "Tokens that were admitted locally and never will be charged: for lack of room, or because the store refuses.", point[int64]{v: int64(st.Lost)})
}
