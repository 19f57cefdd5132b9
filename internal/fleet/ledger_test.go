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
	l.Commit("lost", fleet.Version{Seq: 3}, fleet.Grant{})
	l.Observe("lost", now, fleet.Version{Seq: 3})
	if next := l.Issue("k", 100, targets, now); next["known"] != 50 || next["lost"] != 50 {
		t.Errorf("issued %v", next)
	}
}
