package nearest_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimits/weir/internal/clock/nearest"
)

func TestTo(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "Europe/Dublin", "Asia/Kolkata", "Zürich"}
	for got, want := range map[string]string{
		"europe/berlin": "Europe/Berlin", "Europe/Berlim": "Europe/Berlin", "Eruope/Berlin": "Europe/Berlin",
		"Europ/Dublin": "Europe/Dublin", "Kolkata": "", "UT": "UTC", "zurich": "Zürich", "": "", "xyz": "",
	} {
		if near := nearest.To(got, zones); near != want {
			t.Errorf("%q: %q, want %q", got, near, want)
		}
	}
}

// A word is found however its letters were changed, as long as that is at most a third of them.
func TestToFindsChangedWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SliceOfN(rapid.RuneFrom([]rune("abcXYZ/_0éßЖ界")), 3, 30).Draw(t, "word")
		got := slices.Clone(word)
		for range rapid.IntRange(0, len(word)/3).Draw(t, "changes") {
			at := rapid.IntRange(0, len(got)-1).Draw(t, "at")
			switch r := rapid.RuneFrom([]rune("abq?Ü")).Draw(t, "letter"); rapid.IntRange(0, 2).Draw(t, "change") {
			case 0:
				got = slices.Insert(got, at, r)
			case 1:
				got[at] = r
			default:
				if len(got) > 1 {
					got = slices.Delete(got, at, at+1)
				}
			}
		}
		if near := nearest.To(string(got), []string{string(word)}); near != string(word) {
			t.Fatalf("%q is not found for %q", string(word), string(got))
		}
	})
}
