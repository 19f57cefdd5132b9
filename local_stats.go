package weir

// BackstopStats is what happens while the store does not answer, over all namespaces since the limiter was made.
type BackstopStats struct {
	// Breaker says whether the store is asked: "closed", "open" or "half-open"; "" for one that is always asked.
	Breaker string
	// Openings is how often the limiter has stopped asking.
	Openings uint64
	// Decisions without the store, whatever they came to, by cause.
	TimedOut, Failed, NotAsked uint64
	// Shares is of how many buckets this process keeps its share of the limits, and Instances of how many processes it is.
	Shares, Instances int
	// Admitted is how many tokens were admitted from shares, of all limits, and Refused how many requests were refused by them.
	Admitted, Refused uint64
	// Owing is how many buckets owe the store what was admitted; Charged and Lost are how many tokens were charged to it, and
	// how many never will be. The others have been covered by time.
	Owing         int
	Charged, Lost uint64
}

// BackstopStats returns what happens, or has happened, while the store does not answer.
func (l *Limiter) BackstopStats() BackstopStats {
	lo := l.core.local
	if lo == nil {
		return BackstopStats{Instances: 1}
	}
	st := BackstopStats{
		Openings: lo.openings.Load(),
		TimedOut: lo.causes[0].Load(), Failed: lo.causes[1].Load(), NotAsked: lo.causes[2].Load(),
		Shares: lo.shares.Len(), Instances: l.core.instances(),
		Admitted: lo.admitted.Load() / 1000, Refused: lo.refused.Load(),
	}
	if b := l.core.breaker; b != nil {
		st.Breaker = b.State().String()
	}
	o := &lo.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	st.Charged, st.Lost = o.paid/1000, o.lost/1000
	for _, d := range o.debts {
		if d.queued || d.paying {
			st.Owing++
		}
	}
	return st
}
