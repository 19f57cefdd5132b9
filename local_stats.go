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
	s := l.core.outage.Stats()
	return BackstopStats{
		Breaker: s.Breaker, Openings: s.Openings, TimedOut: s.TimedOut, Failed: s.Failed, NotAsked: s.NotCalled,
		Shares: s.Shares, Instances: s.Instances, Admitted: s.Admitted, Refused: s.Refused,
		Owing: s.Owing, Charged: s.Charged, Lost: s.Lost,
	}
}
