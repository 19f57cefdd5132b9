package fleet_test

import (
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
)

// A party that confirms grants which the ledger does not contain may be using everything, until it confirms newer ones.
func TestObserveLost(t *testing.T) {
	t.Parallel()
	at := func(epoch, seq uint64) fleet.Version { return fleet.Version{Epoch: epoch, Seq: seq} }
	for _, tt := range []struct {
		name   string
		issued []fleet.Version
		acks   []fleet.Version
		want   int64
	}{
		{"nothing granted, nothing confirmed", nil, []fleet.Version{{}}, 0},
		{"nothing granted, something confirmed", nil, []fleet.Version{at(1, 4)}, 1000},
		{"what was granted", []fleet.Version{at(1, 4)}, []fleet.Version{at(1, 4)}, 10},
		{"something older", []fleet.Version{at(1, 4)}, []fleet.Version{at(1, 2)}, 10},
		{"something newer", []fleet.Version{at(1, 4)}, []fleet.Version{at(1, 5)}, 1000},
		{"something in between", []fleet.Version{at(1, 4), at(2, 6)}, []fleet.Version{at(1, 5)}, 1000},
		{"then another process what is older", []fleet.Version{at(1, 4), at(2, 6)}, []fleet.Version{at(1, 5), at(1, 3)}, 1000},
		{"then what was granted since", []fleet.Version{at(1, 4), at(2, 6)}, []fleet.Version{at(1, 5), at(2, 6)}, 10},
	} {
		now := time.Unix(0, 0)
		l := fleet.NewLedger(time.Second, 1000, now)
		l.Observe("p", now, fleet.Version{})
		for _, v := range tt.issued {
			l.Commit("p", v, fleet.Grant{Shares: fleet.Shares{"k": 10}})
		}
		for _, ack := range tt.acks {
			l.Observe("p", now, ack)
		}
		if got := l.Held("p", "k", now); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A leader that takes over while grants are lost has issued newer ones than a party confirms, which may be lost, too.
func TestObserveLostAfterTakeover(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := fleet.NewLedger(time.Second, 1000, now)
	l.Observe("p", now, fleet.Version{Epoch: 1, Seq: 4}) // according to the grants that were found
	l.Commit("p", fleet.Version{Epoch: 2, Seq: 7}, fleet.Grant{})
	for _, tt := range []struct {
		ack  fleet.Version
		lost bool
	}{{fleet.Version{Epoch: 1, Seq: 5}, true}, {fleet.Version{Epoch: 2, Seq: 7}, false}} {
		if l.Observe("p", now, tt.ack); l.AnyLost() != tt.lost {
			t.Errorf("after %v is confirmed, lost: %v", tt.ack, l.AnyLost())
		}
	}
}

// If a party confirms lost grants, every other may be following them, until it confirms newer ones.
func TestObserveLostByOthers(t *testing.T) {
	t.Parallel()
	at := func(epoch, seq uint64) fleet.Version { return fleet.Version{Epoch: epoch, Seq: seq} }
	for _, tt := range []struct {
		name string
		acks []fleet.Version // of the other party: before, and after
		want fleet.Version
	}{
		{"has confirmed nothing", []fleet.Version{{}, {}}, at(1, 5)},
		{"has confirmed older ones", []fleet.Version{at(1, 4), at(1, 4)}, at(1, 5)},
		{"confirms those", []fleet.Version{at(1, 4), at(1, 5)}, at(1, 5)},
		{"confirms newer lost ones", []fleet.Version{at(1, 4), at(1, 6)}, at(1, 6)},
		{"confirms newer ones", []fleet.Version{at(1, 4), at(2, 7)}, at(0, 0)},
		{"has confirmed newer ones", []fleet.Version{at(2, 7), at(1, 4)}, at(0, 0)},
	} {
		now := time.Unix(0, 0)
		l := fleet.NewLedger(time.Second, 1000, now)
		for _, name := range []string{"lost", "other"} {
			l.Observe(name, now, fleet.Version{})
			l.Commit(name, at(1, 4), fleet.Grant{Shares: fleet.Shares{"k": 10}})
			l.Commit(name, at(2, 7), fleet.Grant{Shares: fleet.Shares{"k": 10}})
		}
		l.Observe("other", now, tt.acks[0])
		l.Observe("lost", now, at(1, 5))
		l.Observe("other", now, tt.acks[1])
		if got := l.Lost("other"); got != tt.want {
			t.Errorf("%s: lost %v, want %v", tt.name, got, tt.want)
		}
		l.Observe("lost", now, at(2, 7))
		if l.AnyLost() != (tt.want != at(0, 0)) || l.Lost("lost") != at(0, 0) {
			t.Errorf("%s: after newer ones are confirmed: %v, %v", tt.name, l.Lost("lost"), l.Lost("other"))
		}
	}
}

// While a party may be using everything, nobody's share rises, its own neither.
func TestIssueWhileLost(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	l := fleet.NewLedger(time.Second, 100, now)
	l.Observe("known", now, fleet.Version{})
	l.Commit("known", fleet.Version{Seq: 1}, fleet.Grant{Shares: fleet.Shares{"k": 20}})
	l.Observe("lost", now, fleet.Version{Seq: 2})
	targets := map[string]int64{"known": 50, "lost": 50}
	if next := l.Issue("k", 100, targets, now); next["known"] != 20 || next["lost"] != 0 {
		t.Errorf("issued %v", next)
	}
	l.Commit("known", fleet.Version{Seq: 3}, fleet.Grant{Shares: fleet.Shares{"k": 20}})
	l.Commit("lost", fleet.Version{Seq: 3}, fleet.Grant{})
	l.Observe("lost", now, fleet.Version{Seq: 3})
	if next := l.Issue("k", 100, targets, now); next["known"] != 20 || next["lost"] != 0 {
		t.Errorf("issued %v, though the other may be following lost grants, too", next)
	}
	l.Observe("known", now, fleet.Version{Seq: 3})
	if next := l.Issue("k", 100, targets, now); next["known"] != 50 || next["lost"] != 50 {
		t.Errorf("issued %v", next)
	}
}
