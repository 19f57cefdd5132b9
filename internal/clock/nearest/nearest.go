// Package nearest finds what was probably meant by a word that is misspelt.
package nearest

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// most is how many candidates are looked at: whoever has more of them can be made to compare each with as many others.
const most = 1000

// To returns the most similar candidate, of the first 1,000, that differs in at most a third of its letters, or "".
func To(got string, candidates []string) string {
	best, least := "", 0
	letters := lettersOf(got)
	for _, c := range candidates[:min(len(candidates), most)] {
		most := max(1, utf8.RuneCountInString(c)/3)
		if n := len(got) - len(c); n > 4*most || -n > 4*most { // a letter has at most 4 bytes
			continue
		}
		if letters.apart(c) > 2*most { // a change removes a letter and adds one
			continue
		}
		if d := distance(strings.ToLower(got), strings.ToLower(c)); d <= most && (best == "" || d < least) {
			best, least = c, d
		}
	}
	return best
}

// letters counts letters of either case, some of them together. A count that overflows is closer to 0.
type letters [64]int8

func lettersOf(word string) (n letters) {
	for _, r := range word {
		n[unicode.ToLower(r)%64]++
	}
	return n
}

// apart returns at most how many letters a word has more and fewer.
func (n letters) apart(word string) (sum int) {
	for _, r := range word {
		n[unicode.ToLower(r)%64]--
	}
	for _, d := range n {
		sum += max(int(d), -int(d))
	}
	return sum
}

// distance counts the letters to add, remove, replace or swap with their neighbor.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 64 || len(y) > 64 {
		return 64
	}
	var before, last, row [65]int
	for j := range len(y) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := 1
			if x[i-1] == y[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}
