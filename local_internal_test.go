package weir

// OwedLimits returns the number of limits, over all buckets, for which debt is remembered, for tests.
func OwedLimits(l *Limiter) (n int) {
	o := &l.core.local.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.debts {
		n += len(d.limits)
	}
	return n
}
