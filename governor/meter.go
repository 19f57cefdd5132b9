package governor

import "time"

// meter counts what the calls of a budget did. It is guarded by the budget's lock.
type meter struct {
	slots [slots]int64 // consumed in the last tenths of a second
	last  int64        // the current slot, counted since the governor was created
	first int64        // when something was first consumed
	began bool

	consumed, estimated          int64
	throttles, hotKeys, refused  int64
	waiting                      int64
	waited                       time.Duration
	busySince                    int64         // when calls began to wait, if any wait
	busy                         time.Duration // how long calls waited since the last report to the fleet
	reportedAt, reportedConsumed int64
}

const (
	slots    = 11 // ten complete ones and the current one
	slotTime = int64(100 * time.Millisecond)
)

// advance clears the slots of the time since the last call.
func (m *meter) advance(now int64) {
	at := now / slotTime
	if at-m.last >= slots {
		m.slots, m.last = [slots]int64{}, at
	}
	for m.last < at {
		m.last++
		m.slots[m.last%slots] = 0
	}
}

func (m *meter) add(now, amount int64) {
	m.advance(now)
	if !m.began {
		m.began, m.first = true, now
	}
	m.slots[m.last%slots] += amount
	m.consumed += amount
}

// lastSecond returns what was consumed in the last ten complete tenths of a second.
func (m *meter) lastSecond(now int64) (sum int64) {
	m.advance(now)
	for i, n := range m.slots {
		if int64(i) != m.last%slots {
			sum += n
		}
	}
	return sum
}

// average returns what was consumed per second since the first consumption.
func (m *meter) average(now int64) float64 {
	if passed := time.Duration(now - m.first); m.began && passed > 0 {
		return float64(m.consumed) / passed.Seconds()
	}
	return 0
}

// demand returns what to request of the fleet: everything if calls waited at least half of the time, otherwise a
// quarter more than was used. The first time nothing is known, and demand requests everything.
func (m *meter) demand(now int64, waits bool) (want, used int64) {
	m.pause(now, waits)
	passed := time.Duration(now - m.reportedAt)
	if m.reportedAt > 0 && passed > 0 {
		used = int64(float64(m.consumed-m.reportedConsumed) / passed.Seconds())
	}
	want = used + used/4
	if m.reportedAt == 0 || m.busy >= passed/2 {
		want = -1
	}
	m.busy, m.busySince, m.reportedAt, m.reportedConsumed = 0, now, max(1, now), m.consumed
	return want, used
}

// pause adds up the time in which calls waited, when they stop waiting or the time is read.
func (m *meter) pause(now int64, waited bool) {
	if waited {
		m.busy += time.Duration(now - m.busySince)
	}
}
