package cells

import (
	"cmp"
	"maps"
	"time"
)

// observeInstances takes in a cell's instances.
func (l *ledger) observeInstances(name string, a *account, instances map[string]instanceRecord, now time.Time) {
	maps.DeleteFunc(a.instances, func(id string, _ *instance) bool { _, ok := instances[id]; return !ok })
	for id, r := range instances {
		if r.Birth != a.birth {
			continue
		}
		s := a.instances[id]
		switch {
		case s == nil:
			a.instances[id] = &instance{record: r, seen: now}
		case s.record.Seq != r.Seq:
			if s.heard {
				l.measure(name, id, s, r, now)
			}
			s.record, s.seen, s.heard = r, now, true
		}
	}
	l.chooseInstallation(name, a, now)
	for _, s := range a.instances {
		if !s.other {
			l.Observe(name, s.seen, s.record.Ack)
		}
	}
}

// chooseInstallation decides which installation is the cell if several use its name: the current one for as long as it
// is heard of, then the one with the newest confirmation.
func (l *ledger) chooseInstallation(name string, a *account, now time.Time) {
	if a.store == "" || l.Missing(name, now) {
		var best *instance
		for _, s := range a.instances {
			if s.record.Store != "" && now.Sub(s.seen) < l.Patience &&
				(best == nil || cmp.Or(
					s.record.Ack.Compare(best.record.Ack), cmp.Compare(best.record.Store, s.record.Store),
				) > 0) {
				best = s
			}
		}
		if best != nil {
			a.store = best.record.Store
		}
	}
	for _, s := range a.instances {
		other := s.record.Store != "" && s.record.Store != a.store
		if other && !s.other {
			s.since = now
		}
		s.other = other
	}
}

// others counts the agents of other installations that beat under a cell's name. It leaves out recent ones: an agent
// that starts while the cell's store has lost its name may report another for a beat.
func (l *ledger) others(a *account, now time.Time) (n int) {
	for _, s := range a.instances {
		if s.other && now.Sub(s.since) >= l.Patience/3 && now.Sub(s.seen) < l.Patience {
			n++
		}
	}
	return n
}
