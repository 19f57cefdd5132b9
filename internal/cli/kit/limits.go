package kit

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir"
)

// LimitFlag adds -l, which is repeatable.
func LimitFlag(cmd *cobra.Command, limits *[]string, what string) {
	cmd.Flags().StringArrayVarP(
		limits, "limit", "l", nil, "`LIMIT` "+what+", such as tpm:50K/min:75K (name:amount/period[:burst]); repeatable",
	)
}

// ParseLimits parses limits and checks that they fit together.
func ParseLimits(texts []string) ([]weir.Limit, error) {
	var limits []weir.Limit
	for _, text := range texts {
		l, err := weir.ParseLimit(text)
		if err != nil {
			return nil, err
		}
		limits = append(limits, l)
	}
	if len(limits) > 0 { // validate before anything is set
		if err := (&weir.ScopedLimits{Limits: limits}).Validate(); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

// SomeLimits is parseLimits, but requires at least one limit.
func SomeLimits(texts []string) ([]weir.Limit, error) {
	if len(texts) == 0 {
		return nil, UsageError{errors.New("no limit is given: add -l name:amount/period, such as -l rpm:100/min")}
	}
	return ParseLimits(texts)
}
