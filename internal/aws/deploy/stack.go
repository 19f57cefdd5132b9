package deploy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/weirlimits/weir/internal/aws/cloud"
)

// Config configures a [Deployer]. Clients are required.
type Config struct {
	Clients
	// Version is the version of this weir.
	Version string
	// Zip builds the functions' package, and returns the hash under which it is stored.
	Zip func(context.Context) (zip []byte, hash string, err error)
	// Tell, if not nil, receives the events of a stack as they happen.
	Tell func(Event)
	// Planned, if not nil, receives the planned changes before any of them is made.
	Planned func([]Change)
	// Poll is the interval between polls of a long operation. The default is 2 s.
	Poll time.Duration
}

// Deployer manages the stacks of one account and region.
type Deployer struct{ cfg Config }

// New returns a deployer. It makes no call.
func New(cfg Config) *Deployer {
	cfg.Poll = cmp.Or(cfg.Poll, 2*time.Second)
	return &Deployer{cfg}
}

// Stack is a deployed stack of weir's.
type Stack struct {
	Name, ID         string
	State, Reason    string // as CloudFormation reports them: CREATE_COMPLETE, …
	Version          string // of the weir that deployed it last
	Created, Updated time.Time
	Protected        bool // from deletion
	Outputs          map[string]string
	Params           cloud.Params // what it was deployed with, without the version
	Template         []byte
}

// Stack returns a stack of weir's. The error is a [*NotFoundError] if there is none.
func (d *Deployer) Stack(ctx context.Context, name string) (Stack, error) {
	found, err := d.find(ctx, name)
	if err != nil {
		return Stack{}, trouble("inspect", name, err)
	}
	if found == nil {
		return Stack{}, d.missing(ctx, name)
	}
	st := stackOf(found)
	if st.State == string(types.StackStatusReviewInProgress) {
		return st, nil
	}
	out, err := d.cfg.Stacks.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: &st.ID})
	if err != nil {
		return st, trouble("inspect", name, err)
	}
	st.Template = []byte(aws.ToString(out.TemplateBody))
	st.Params, err = paramsOf(st.Template)
	return st, trouble("inspect", name, err)
}

// find returns a stack, whether weir's or not, or nil.
func (d *Deployer) find(ctx context.Context, name string) (*types.Stack, error) {
	out, err := d.cfg.Stacks.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &name})
	if noStack(err) || err == nil && len(out.Stacks) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return &out.Stacks[0], nil
}

func stackOf(s *types.Stack) Stack {
	st := Stack{
		Name: aws.ToString(s.StackName), ID: aws.ToString(s.StackId), State: string(s.StackStatus), Reason: reasonText(aws.ToString(s.StackStatusReason)),
		Version: tagOf(s, cloud.TagVersion), Created: aws.ToTime(s.CreationTime), Updated: aws.ToTime(s.LastUpdatedTime),
		Protected: aws.ToBool(s.EnableTerminationProtection), Outputs: make(map[string]string),
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
			if tagOf(&page.Stacks[i], cloud.TagStack) != "" {
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

// metadata is what weir stores in a template.
type metadata struct{ Params cloud.Params }

// template returns the template of p with p in its metadata, as compactly as possible.
func template(p cloud.Params) ([]byte, error) {
	text, err := cloud.Template(p)
	if err != nil {
		return nil, err
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	p.Version = "" // the version is a tag; here it would count as another change
	note, err := json.Marshal(map[string]metadata{"Weir": {p}})
	if err != nil {
		return nil, err
	}
	doc["Metadata"] = note
	return json.Marshal(doc)
}

var errNotOurs = errors.New("the stack was not deployed by weir")

// paramsOf returns the parameters from which a template was made.
func paramsOf(template []byte) (cloud.Params, error) {
	var doc struct{ Metadata struct{ Weir *metadata } }
	if err := json.Unmarshal(template, &doc); err != nil || doc.Metadata.Weir == nil {
		return cloud.Params{}, fmt.Errorf("%w: its template has no weir metadata", errNotOurs)
	}
	// Parameters unknown to the older weir get their defaults.
	full := struct{ Metadata struct{ Weir metadata } }{}
	full.Metadata.Weir.Params = cloud.Defaults()
	err := json.Unmarshal(template, &full)
	return full.Metadata.Weir.Params, err
}
