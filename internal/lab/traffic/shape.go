package traffic

import (
	"math"
	"sort"
	"time"
)

// curve is the number of users over time, as consecutive straight lines.
type curve []line

// line goes from a users to b between two times in seconds. before is the area under the preceding lines, in
// user-seconds.
type line struct{ from, to, a, b, before float64 }

// flat is a constant number of users.
func flat(users float64, length time.Duration) curve {
	return curve{{from: 0, to: length.Seconds(), a: users, b: users}}
}

// shaped follows stages, scaled in time so that they take as long as the run.
func shaped(stages []Stage, length time.Duration) curve {
	total := 0.0
	for _, st := range stages {
		total += time.Duration(st.For).Seconds()
	}
	scale := length.Seconds() / total
	var c curve
	at, users := 0.0, 0.0
	if len(stages) > 0 {
		users = float64(stages[0].Users) // a shape begins with the users of its first stage
	}
	add := func(seconds, to float64) {
		if seconds <= 0 {
			return
		}
		l := line{from: at, to: at + seconds*scale, a: users, b: to}
		if n := len(c); n > 0 {
			l.before = c[n-1].before + c[n-1].area(c[n-1].to)
		}
		c, at, users = append(c, l), l.to, to
	}
	for _, st := range stages {
		seconds, target := time.Duration(st.For).Seconds(), float64(st.Users)
		ramp := min(seconds, math.Abs(target-users)/st.Spawn)
		reached := users + math.Copysign(ramp*st.Spawn, target-users)
		if ramp < seconds {
			reached = target
		}
		add(ramp, reached)
		add(seconds-ramp, reached)
	}
	return c
}

func (l *line) slope() float64 { return (l.b - l.a) / (l.to - l.from) }

// area returns the area under the line up to t.
func (l *line) area(t float64) float64 {
	d := t - l.from
	return l.a*d + l.slope()*d*d/2
}

// at returns the number of users at t.
func (c curve) at(t time.Duration) float64 {
	i := min(sort.Search(len(c), func(i int) bool { return c[i].to > t.Seconds() }), len(c)-1)
	l := &c[i]
	return l.a + l.slope()*(min(t.Seconds(), l.to)-l.from)
}

func (c curve) area() float64 {
	l := &c[len(c)-1]
	return l.before + l.area(l.to)
}

// reach returns the time at which the area reaches a value.
func (c curve) reach(area float64) float64 {
	i := max(0, sort.Search(len(c), func(i int) bool { return c[i].before > area })-1)
	l := &c[i]
	n, m := area-l.before, l.slope()
	root := l.a + math.Sqrt(max(0, l.a*l.a+2*m*n))
	if root == 0 {
		return l.from
	}
	return min(l.to, l.from+2*n/root)
}

// schedule determines when the calls of an open loop are due.
type schedule struct {
	total  uint64
	curve  curve
	each   float64 // calls per second per user
	bursts *Bursts
}

func scheduleOf(c curve, each float64, b *Bursts, length time.Duration) *schedule {
	s := &schedule{curve: c, each: each, bursts: b}
	if b != nil {
		every := time.Duration(b.Every)
		n := max(0, length-b.first()+every-1) / every
		s.total = uint64(n) * uint64(b.Calls)
		return s
	}
	s.total = uint64(math.Ceil(c.area()*each - 1e-6))
	return s
}

// at returns when the n-th call is due, counted from 0.
func (s *schedule) at(n uint64) time.Duration {
	if b := s.bursts; b != nil {
		return b.first() + time.Duration(n/uint64(b.Calls))*time.Duration(b.Every)
	}
	return time.Duration(s.curve.reach(float64(n)/s.each) * float64(time.Second))
}
