package deploy

import (
	"strconv"
	"strings"
)

// later reports whether version a is later than b, if both are versions: v1.2.3, without what follows a hyphen.
func later(a, b string) bool {
	x, ok := numbers(a)
	y, ok2 := numbers(b)
	if !ok || !ok2 {
		return false
	}
	for i := range x {
		if x[i] != y[i] {
			return x[i] > y[i]
		}
	}
	return false
}

func numbers(version string) (n [3]int, ok bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	parts := strings.Split(text, ".")
	if len(parts) != len(n) {
		return n, false
	}
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil {
			return n, false
		}
		n[i] = v
	}
	return n, true
}
