package simulate

import (
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/batch/expr"
	"github.com/weirlimits/weir/internal/batch/hot"
	"github.com/weirlimits/weir/internal/batch/plan"
	"github.com/weirlimits/weir/internal/clock"
)

// What the driver's defaults are.
const (
	guardShare   = 0.01
	readPause    = int64(25 * time.Millisecond) // at most, before shard 0 is read again
	callTimeout  = int64(time.Second)
	writeTimeout = 2 * time.Second
)

// lane makes a process's writes to one shard of a bucket, one at a time. What they carry is planned as in the driver.
type lane struct {
	p *process
	m *memory
	k int

	state   plan.State
	meter   hot.Meter
	waiting []*job
	writing bool
	paused  bool
}

func (l *lane) place() plan.Place { return plan.Place{K: l.k, N: l.m.n} }

// time returns the time by the process's clock.
func (l *lane) time() time.Time { return clock.Time(l.p.clock()) }

// room returns what is available according to what was last seen.
func (l *lane) room() int64 {
	l.state.On = l.place()
	room, _ := l.state.Room(l.p.cell.view, 0, l.state.Tick(l.time()))
	return room
}

// local reports whether a job is refused from memory.
func (l *lane) local(j *job) bool {
	l.state.On = l.place()
	at := l.time()
	now := l.state.Tick(at)
	return !l.writing && !l.paused && len(l.waiting) == 0 && l.state.RefusesNow(&j.plan, at, now)
}

// add lets a job wait for a write.
func (l *lane) add(j *job) {
	j.plan.Since, j.plan.Came = l.state.Sent, l.state.Tick(l.time())
	j.known = l.state.Last != nil
	l.waiting = append(l.waiting, j)
	l.board()
}

// board plans the next write, according to what was last seen.
func (l *lane) board() {
	if l.writing || l.paused {
		return
	}
	waiting := slices.DeleteFunc(l.waiting, func(j *job) bool { return j.answered })
	jobs := make([]*plan.Job, len(waiting))
	for i, j := range waiting {
		j.plan.N, jobs[i] = i, &j.plan
	}
	l.state.On, l.state.Roots.TTL = l.place(), l.p.cell.item(l.m.entity, 0).seen.TTL
	state, w, later := plan.Plan(l.state, jobs, l.time())
	l.state, l.waiting = state, nil
	for _, j := range later {
		l.waiting = append(l.waiting, waiting[j.N])
	}
	for i := range w.Answers {
		l.p.takeAnswer(waiting[w.Answers[i].Job.N], l, w.Answers[i])
	}
	if w.Number == 0 {
		return
	}
	var aboard []*job
	for _, e := range w.Entries {
		aboard = append(aboard, waiting[e.Job.N])
	}
	l.writing = true
	l.p.s.births++
	w.Birth = l.p.s.births
	u := new(expr.Update)
	w.Update(u)
	sent := l.p.s.now
	l.p.cell.update(l.m.entity, l.k, u, func(got plan.Got) { l.landed(w, aboard, sent, got) })
}

// landed handles what came of a write.
func (l *lane) landed(w *plan.Write, aboard []*job, sent int64, got plan.Got) {
	l.writing = false
	state, answers := plan.Judge(l.state, w, got)
	l.state = state
	var again []*job
	for i, a := range answers {
		j := aboard[i]
		switch {
		case a.Verdict != plan.Again:
			j.at = sent
			l.p.takeAnswer(j, l, a)
		case !j.answered:
			if got.Item != nil {
				j.plan.Tries++
			}
			again = append(again, j)
		}
	}
	l.waiting = slices.Concat(again, l.waiting)
	if l.meter.Saw(w.On, w.Now, &got) {
		l.m.grow(l.p, 2*w.On.N)
	}
	if most := int64(state.Pause()); len(again) > 0 && most > 0 {
		l.pause(most)
	}
	l.board()
}

// pause waits for a random time before the next write.
func (l *lane) pause(most int64) {
	l.paused = true
	l.p.s.after(l.p.s.dice.Int64N(most)+1, func() {
		l.paused = false
		l.board()
	})
}

// undo returns what a job took.
func (l *lane) undo(took plan.Answer) {
	l.add(&job{m: l.m, plan: *took.Undo()})
}
