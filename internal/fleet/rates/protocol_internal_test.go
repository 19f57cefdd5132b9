package rates

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// A registry is restored. One worker is gone that had confirmed grants since, and one uses less than was restored. The
// gone one takes nothing from the other, whose share does not rise before it is forgotten.
func TestLostAndGone(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	w := &Worker{
		id: "live", expiry: time.NewTimer(time.Hour),
		cfg: Config{
			Refresh: 5 * time.Second, Forget: 5 * time.Minute, Registry: &fleet.Memory{},
			Budgets: []Budget{{Name: "b", Limit: 1000}}, Granted: func([]int64) {},
		},
		share: share{
			Version: fleet.Version{Epoch: 1, Seq: 6}, granted: true, rate: []int64{300}, safe: []int64{200},
			expires: time.Now().Add(time.Hour), current: make([]int64, 1),
		},
	}
	p := &protocol{w: w, sent: make(map[uint64]time.Time), forgotten: make(map[string]uint64)}
	g := &grants{Head: fleet.Head{Version: fleet.Version{Epoch: 1, Seq: 4}}, LeaseMS: 20000, Budgets: []string{"b"}}
	g.Workers = map[string]*grant{
		"live": {Seq: 1, Rate: []int64{500}, Safe: []int64{250}},
		"gone": {Seq: 1, Rate: []int64{500}, Safe: []int64{250}},
	}
	want := []demand{{"b", 1000, -1, 0}}
	gone := &report{Seq: 1, Ack: fleet.Version{Epoch: 1, Seq: 5}, Budgets: want}
	p.now = now
	p.reports = map[string]*report{"live": {}, "gone": gone} // until it is forgotten
	p.TakeOver(g)
	for i := range uint64(70) {
		if i == 3 {
			p.TakeOver(g)
		}
		p.reports["live"] = &report{Seq: i + 2, Ack: w.follows(), Budgets: want}
		g = p.Issue(fleet.Head{Version: fleet.Version{Epoch: 2, Seq: i + 7}, Leader: "live"})
		if err := p.Commit(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		w.follow(g, time.Now())
		if gone := g.Workers["gone"]; gone != nil && (w.share.rate[0] != 300 || w.share.safe[0] != 200) {
			t.Fatalf("beat %d: rate %v, safe %v; it had 300 and 200", i, w.share.rate, w.share.safe)
		} else if gone != nil && gone.Safe[0] > 500 {
			t.Fatalf("beat %d: the gone worker's safe share is %d", i, gone.Safe[0])
		}
		p.now = p.now.Add(5 * time.Second)
	}
	if g.Workers["gone"] != nil || w.share.rate[0] != 1000 {
		t.Errorf("after the gone worker is forgotten: %v of 1000", w.share.rate)
	}
}

// Two workers joined one that used everything; it has not yet confirmed its lower share. It wants all that it can get,
// so no later report would raise its part: grants issued meanwhile do not give it more again.
func TestGiveWay(t *testing.T) {
	t.Parallel()
	w := &Worker{cfg: Config{Refresh: 5 * time.Second, Forget: 5 * time.Minute, Registry: &fleet.Memory{}}}
	p := &protocol{w: w, now: time.Unix(1000, 0)}
	everything, first := []demand{{"b", 900, -1, 0}}, fleet.Version{Epoch: 1, Seq: 1}
	g := &grants{Head: fleet.Head{Version: first}, LeaseMS: 20000, Budgets: []string{"b"}}
	g.Workers = map[string]*grant{
		"old": {Rate: []int64{600}}, "new": {Rate: []int64{100}}, "other": {Rate: []int64{100}},
	}
	p.reports = make(map[string]*report)
	for id := range g.Workers {
		p.reports[id] = &report{Seq: 1, Ack: first, Budgets: everything}
	}
	p.TakeOver(g)
	for i := range uint64(3) {
		g = p.Issue(fleet.Head{Version: fleet.Version{Epoch: 1, Seq: 2 + i}})
		if err := p.Commit(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		if share := g.Workers["old"].Rate[0]; share != 300 {
			t.Errorf("grants %d leave %d of 900 to one of three that want everything", i, share)
		}
		p.now = p.now.Add(time.Second)
	}
}
