package weir

// OwedLimits returns of how many limits of all buckets it is remembered what is owed, for tests.
func OwedLimits(l *Limiter) (n int) {
	o := &l.core.local.owed
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.debts {
		n += len(d.limits)
	}
	return n
}
