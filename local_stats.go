package weir

// BackstopStats describes what happens while the store does not answer, over all namespaces since the limiter was
// created.
type BackstopStats struct {
	// Breaker is the breaker's state: "closed", "open" or "half-open"; "" if the store is always called.
	Breaker string
	// Openings counts how often the limiter stopped calling the store.
	Openings uint64
	// The decisions made without the store, admitted or not, by cause.
	TimedOut, Failed, NotAsked uint64
	// Shares is the number of buckets for which this process keeps a share; Instances is the number of processes that
	// share the limits.
	Shares, Instances int
	// Admitted counts the tokens admitted from shares, over all limits; Refused counts the requests that shares
	// refused.
	Admitted, Refused uint64
	// Owing is the number of buckets with tokens admitted but not yet charged to the store. Charged and Lost count the
	// tokens that were charged to it, and those that never will be. Time has covered the rest.
	Owing         int
	Charged, Lost uint64
}

// BackstopStats returns statistics of what happens while the store does not answer.
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
