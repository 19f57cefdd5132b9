package metrics

import (
	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/internal/outage"
)

// backstop adds the metrics of decisions made while the store does not answer.
func (s *Scrape) backstop(st outage.Stats) {
	var states []point
	for _, state := range []string{"closed", "open", "half-open"} {
		now := st.Breaker == state || st.Breaker == "" && state == "closed"
		states = append(states, yes(now, "state", state))
	}
	s.gauge("weir.breaker.state", "1 for the current state: closed, the store is asked; open, it is not; half-open, "+
		"one call probes it.", states...)
	s.count("weir.breaker.openings", "How often the breaker opened.", value(st.Openings))
	s.count("weir.degraded.decisions", "Decisions made without the store, whatever the outcome, by the reason.",
		value(st.TimedOut, "cause", string(weir.CauseTimeout)),
		value(st.Failed, "cause", string(weir.CauseError)),
		value(st.NotCalled, "cause", string(weir.CauseOpen)))
	s.gauge("weir.instances", "Servers that are believed to share the limits while the store does not answer.",
		value(st.Instances))
	s.gauge("weir.local.shares", "Buckets whose local share this server keeps.", value(st.Shares))
	s.count("weir.local.admitted.tokens", "Tokens admitted from local shares.", value(st.Admitted))
	s.count("weir.local.refusals", "Requests that local shares refused.", value(st.Refused))
	s.gauge("weir.local.owing", "Buckets whose local admissions have yet to be charged to the store.",
		value(st.Owing))
	s.count("weir.local.charged.tokens", "Tokens admitted locally and charged to the store afterwards.",
		value(st.Charged))
	s.count("weir.local.lost.tokens", "Tokens admitted locally that will never be charged, for lack of room or "+
		"because the store refuses.", value(st.Lost))
}
