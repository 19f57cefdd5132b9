package record

import (
	"strconv"
	"strings"
)

// ParseThresholds parses percentages separated by commas, none (or "") for none, and default for nil. It does not check
// them.
func ParseThresholds(text string) ([]int, error) {
	switch text {
	case "default":
		return nil, nil
	case "", "none":
		return []int{}, nil
	}
	t := []int{}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, Invalid("near_limit", "%q is not a percentage such as 80", part)
		}
		t = append(t, n)
	}
	return t, nil
}

// FormatThresholds returns the text that [ParseThresholds] reads.
func FormatThresholds(t []int) string {
	switch {
	case t == nil:
		return "default"
	case len(t) == 0:
		return "none"
	}
	texts := make([]string, len(t))
	for i, n := range t {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// CheckThresholds reports what is wrong with thresholds, of which there are at most most.
func CheckThresholds(t []int, most int) error {
	if len(t) > most {
		return Invalid("near_limit", "has %d thresholds, at most %d are allowed", len(t), most)
	}
	for i, n := range t {
		switch {
		case n < 1 || n > 100:
			return Invalid("near_limit", "%d is not a percentage from 1 to 100", n)
		case i > 0 && n <= t[i-1]:
			return Invalid("near_limit", "%d comes after %d: the thresholds must ascend", n, t[i-1])
		}
	}
	return nil
}
