package simulate

// event is something that happens at a given time.
type event struct {
	at  int64
	seq uint64 // events of the same time happen in the order in which they were planned
	do  func()
}

// agenda is the virtual time, and a heap of events, the next one first.
type agenda struct {
	now    int64 // since begin
	events []event
	seq    uint64
}

func (a *agenda) at(t int64, do func())    { a.add(max(t, a.now), do) }
func (a *agenda) after(d int64, do func()) { a.at(a.now+d, do) }

func (a event) before(b event) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

func (a *agenda) add(at int64, do func()) {
	a.seq++
	e := event{at, a.seq, do}
	a.events = append(a.events, e)
	i := len(a.events) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(a.events[up]) {
			break
		}
		a.events[i] = a.events[up]
		i = up
	}
	a.events[i] = e
}

func (a *agenda) next() event {
	top, last := a.events[0], a.events[len(a.events)-1]
	a.events[len(a.events)-1] = event{}
	a.events = a.events[:len(a.events)-1]
	n, i := len(a.events), 0
	if n == 0 {
		return top
	}
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && a.events[child+1].before(a.events[child]) {
			child++
		}
		if !a.events[child].before(last) {
			break
		}
		a.events[i] = a.events[child]
		i = child
	}
	a.events[i] = last
	return top
}
