package limits

import (
	"fmt"
	"os"
	"strings"

	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/manifest"
	"github.com/weirlimits/weir/internal/manifest/guard"
)

// policyFlag names a file of rules that plans must keep to.
type policyFlag struct {
	Policy string `json:"policy"`
}

// policy is the rules of a file; without any, everything is allowed.
type policy struct {
	*guard.Rules

	file string
}

func (f *policyFlag) read(r *kit.Run, via *lambdaFlags) (policy, error) {
	if f.Policy == "" {
		return policy{}, nil
	}
	if err := via.needStore(r, "--policy"); err != nil {
		return policy{}, err
	}
	text, err := os.ReadFile(f.Policy)
	if err != nil {
		return policy{}, fmt.Errorf("read the policy: %w", err)
	}
	rules, err := guard.Read(f.Policy, text)
	if err != nil {
		return policy{}, kit.Usage(err)
	}
	return policy{rules, f.Policy}, nil
}

// maxBroken is how many changes an error lists.
const maxBroken = 20

// allow returns an error if plans break the rules, and what of them only stages may do, unless that is an error, too.
func (p policy) allow(plans []*manifest.Plan, staged bool) (stages []string, err error) {
	if p.Rules == nil {
		return nil, nil
	}
	var all []string
	for _, plan := range plans {
		broken, unstaged := p.Check(plan)
		all = append(all, broken...)
		rolling := plan.Rollout != nil && plan.Rollout.Same
		for _, text := range unstaged {
			if staged || rolling {
				stages = append(stages, fmt.Sprintf("policy %s: only with --stage: %s", p.file, text))
			} else {
				all = append(all, text+": apply it with --stage")
			}
		}
	}
	if len(all) == 0 {
		return stages, nil
	}
	more := ""
	if len(all) > maxBroken {
		more = fmt.Sprintf("; and %d more", len(all)-maxBroken)
		all = all[:maxBroken]
	}
	return stages, fmt.Errorf("policy %s refuses it: %s%s", p.file, strings.Join(all, "; "), more)
}
