package deploy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/weirlimits/weir/internal/aws/stack"
)

// Config configures a [Deployer]. Clients are required.
type Config struct {
	Clients
	// Version is the version of this weir.
	Version string
	// Zip builds the functions' package, and returns the hash under which it is stored.
	Zip func(context.Context) (zip []byte, hash string, err error)
	// Cost, if not nil, returns the expression of the cost alarm, from the values of all parameters.
	Cost func(stack.Values) string
	// Tell, if not nil, receives the events of a stack as they happen.
	Tell func(Event)
	// Planned, if not nil, receives the planned changes before any of them is made.
	Planned func([]Change)
	// Poll is the interval between polls of a long operation. The default is 2 s.
	Poll time.Duration
}

// Deployer manages the stacks of one account and region.
type Deployer struct {
	cfg       Config
	formation *formation
}

// New returns a deployer. It makes no call.
func New(cfg Config) *Deployer {
	cfg.Poll = cmp.Or(cfg.Poll, 2*time.Second)
	return &Deployer{cfg, &formation{cfg.Stacks, cfg.Tell, cfg.Poll}}
}

// Stack is a deployed stack of weir's.
type Stack struct {
	Name, ID         string
	State, Reason    string // as CloudFormation reports them: CREATE_COMPLETE, …
	Version          string // of the weir that deployed it last
	Created, Updated time.Time
	Protected        bool // from deletion
	Outputs          map[string]string
	Tags             map[string]string // the user's own
	Template         []byte
	Values           stack.Values // of its parameters

	stored bool // the values are the stack's own, and can stay
}

// Stack returns a stack of weir's. The error is a [*NotFoundError] if there is none.
func (d *Deployer) Stack(ctx context.Context, name string) (Stack, error) {
	found, err := d.formation.find(ctx, name)
	if err != nil {
		return Stack{}, trouble("inspect", name, err)
	}
	if found == nil {
		return Stack{}, d.missing(ctx, name)
	}
	if found.StackStatus == types.StackStatusReviewInProgress {
		return stackOf(found), nil
	}
	st, err := d.read(ctx, found)
	return st, trouble("inspect", name, err)
}

// read returns a stack with its template and settings.
func (d *Deployer) read(ctx context.Context, found *types.Stack) (Stack, error) {
	st := stackOf(found)
	out, err := d.cfg.Stacks.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: &st.ID})
	if err != nil {
		return st, err
	}
	st.Template = []byte(aws.ToString(out.TemplateBody))
	if st.stored = st.Values["Stack"] != ""; st.stored {
		return st, nil
	}
	doc, err := stack.Parse(st.Template)
	if err != nil {
		return st, err
	}
	values, tags, err := stack.Legacy(doc, st.ID)
	if err == nil && values == nil {
		err = fmt.Errorf("%w: its template has no parameters of weir's", errNotOurs)
	}
	st.Values, st.Tags = values, tags
	return st, err
}

func stackOf(s *types.Stack) Stack {
	st := Stack{
		Name: aws.ToString(s.StackName), ID: aws.ToString(s.StackId),
		State: string(s.StackStatus), Reason: reasonText(aws.ToString(s.StackStatusReason)),
		Version: tagOf(s, stack.TagVersion), Created: aws.ToTime(s.CreationTime),
		Updated:   aws.ToTime(s.LastUpdatedTime),
		Protected: aws.ToBool(s.EnableTerminationProtection), Outputs: make(map[string]string),
		Tags: make(map[string]string), Values: make(stack.Values),
	}
	for _, p := range s.Parameters {
		st.Values[aws.ToString(p.ParameterKey)] = aws.ToString(p.ParameterValue)
	}
	for _, t := range s.Tags {
		if k := aws.ToString(t.Key); !strings.HasPrefix(k, "weir:") && !strings.HasPrefix(k, "aws:") {
			st.Tags[k] = aws.ToString(t.Value)
		}
	}
	for _, o := range s.Outputs {
		st.Outputs[aws.ToString(o.OutputKey)] = aws.ToString(o.OutputValue)
	}
	return st
}

func tagOf(s *types.Stack, key string) string {
	for _, t := range s.Tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

// missing returns the error for a stack that does not exist, listing those that do.
func (d *Deployer) missing(ctx context.Context, name string) error {
	err := &NotFoundError{Name: name, Region: d.cfg.Region}
	all, listing := d.List(ctx)
	if listing != nil {
		return err
	}
	for _, s := range all {
		if near(name, s.Name) {
			err.Near, err.Meant = append(err.Near, s.Name), true
		}
	}
	for i := 0; !err.Meant && i < min(len(all), 5); i++ {
		err.Near = append(err.Near, all[i].Name)
	}
	return err
}

// List returns weir's stacks in the region, by name, without their templates.
func (d *Deployer) List(ctx context.Context) ([]Stack, error) {
	var all []Stack
	pages := cloudformation.NewDescribeStacksPaginator(d.cfg.Stacks, &cloudformation.DescribeStacksInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, brief(err)
		}
		for i := range page.Stacks {
			if tagOf(&page.Stacks[i], stack.TagStack) != "" {
				all = append(all, stackOf(&page.Stacks[i]))
			}
		}
	}
	slices.SortFunc(all, func(a, b Stack) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// near reports whether two names are similar: up to two letters differ, or one begins with the other.
func near(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if len(a) > 2 && (strings.HasPrefix(b, a) || strings.HasPrefix(a, b)) {
		return true
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)] <= 2 && row[len(b)] < len(a)
}
