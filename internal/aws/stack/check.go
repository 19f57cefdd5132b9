package stack

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxName is IAM's maximum length of a role's name.
const maxName = 64

// ValueError reports a value that AWS would refuse, or that would not do what it appears to. It names the flag.
type ValueError struct{ Err error }

// Error is the text of Err.
func (e *ValueError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ValueError) Unwrap() error { return e.Err }

// Check rejects wrong values, and combinations that would fail. The values are those of all parameters; the location of
// the code may be missing. The error is a [*ValueError].
func (t *Template) Check(all Values) error {
	if err := t.CheckEach(all); err != nil {
		return err
	}
	for _, p := range t.Parameters {
		if _, ok := all[p.Name]; !ok && p.Required && !strings.HasPrefix(p.Name, "Code") {
			return &ValueError{fmt.Errorf("--%s: is required", p.Flag())}
		}
	}
	if err := t.together(all); err != nil {
		return &ValueError{err}
	}
	return nil
}

// CheckEach rejects wrong values, whatever the others are. The error is a [*ValueError].
func (t *Template) CheckEach(values Values) error {
	for _, p := range t.Parameters {
		if v, ok := values[p.Name]; ok {
			if err := p.check(v); err != nil {
				return &ValueError{err}
			}
		}
	}
	return nil
}

// together compares parameters with each other, which CloudFormation cannot.
func (t *Template) together(all Values) error {
	switch t.Kind {
	case Weir:
		return checkWeir(all)
	case Cell:
		if all["Replicas"] != "0" && !strings.Contains(all["Subnet"], ",") {
			return fmt.Errorf("--replicas %s: needs a --subnet in another zone", all["Replicas"])
		}
	case Edge:
		switch {
		case (all["Api"] == "") != (all["Stage"] == ""):
			return errors.New("--api and --stage must be used together")
		case all["Api"] != "" && all["NoPlan"] == "true":
			return errors.New("--api: there is no usage plan with --no-plan: omit one of them")
		}
	case Gate:
		return checkGate(all)
	}
	return nil
}

// check rejects a value that CloudFormation would.
func (p *Parameter) check(v string) error {
	bad := func(text string) error { return fmt.Errorf("--%s %q: %s", p.Flag(), v, text) }
	if len(p.Values) > 0 && !slices.Contains(p.Values, v) {
		return bad("must be " + strings.Join(p.Values, " or "))
	}
	if p.Type == "Number" {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || !(p.Least <= n && n <= p.Most) && p.Most > 0 { // NaN is outside, too
			return fmt.Errorf("--%s %s: must be from %g to %.0f", p.Flag(), v, p.Least, p.Most)
		}
		return nil
	}
	pattern, err := regexp.Compile(p.Pattern)
	switch {
	case err != nil:
		return err
	case pattern.MatchString(v):
		return nil
	case p.Must != "":
		return bad(p.Must)
	}
	return bad("must match " + p.Pattern)
}

func checkWeir(all Values) error {
	n := func(name string) int {
		i, _ := strconv.Atoi(all[name]) // checked before
		return i
	}
	given := func(name string) bool { return all[name] != "" }
	is := func(name string) bool { return all[name] == "true" }
	switch longest := len(all["NamePrefix"] + all["Stack"] + "-config" + all["NameSuffix"]); {
	case n("ReadMin") > n("ReadMax"):
		return fmt.Errorf("--read-min %d: is more than --read-max %d", n("ReadMin"), n("ReadMax"))
	case n("WriteMin") > n("WriteMax"):
		return fmt.Errorf("--write-min %d: is more than --write-max %d", n("WriteMin"), n("WriteMax"))
	case n("Batch") > 10 && n("BatchWindow") == 0:
		return fmt.Errorf("--batch %d: needs --batch-window, at least 1 second", n("Batch"))
	case n("ArchiveDays") != 0 && n("ArchiveDays") <= n("ArchiveColdDays"):
		return fmt.Errorf("--archive-days %d: must be more than --archive-cold-days %d",
			n("ArchiveDays"), n("ArchiveColdDays"))
	case longest > maxName:
		return fmt.Errorf("--name-prefix, --name-suffix: make names of %d characters, IAM allows %d", longest, maxName)
	case given("AlarmTopic") && is("NoAlarms"):
		return errors.New("--alarm-topic: there are no alarms with --no-alarms: omit one of them")
	case given("Trust") && (is("NoIam") || is("NoPolicies")):
		return errors.New("--trust: there are no roles with --no-iam or --no-policies: omit one of them")
	}
	for _, f := range []struct{ role, without string }{
		{"AggregatorRoleArn", "NoAggregator"}, {"ProvisionerRoleArn", "NoProvisioner"}, {"ConfigRoleArn", ""},
	} {
		exists := f.without != "" && !is(f.without) || f.without == "" && is("ConfigFlow")
		p := Parameter{Name: f.role, Description: "`"}
		switch {
		case given(f.role) && !exists:
			return fmt.Errorf("--%s: there is no such function: omit it", p.Flag())
		case !given(f.role) && exists && is("NoIam"):
			return fmt.Errorf(
				"--no-iam: the function needs your own role: set --%s ARN, or omit the function", p.Flag(),
			)
		}
	}
	return nil
}

func checkGate(all Values) error {
	for i := 1; ; i++ {
		name := "RollbackAlarm" + strconv.Itoa(i)
		arn, ok := all[name]
		if !ok {
			return nil
		}
		for j := 1; arn != "" && j < i; j++ {
			if all["RollbackAlarm"+strconv.Itoa(j)] == arn {
				return fmt.Errorf("--rollback-alarm %q: is given twice", arn)
			}
		}
	}
}
