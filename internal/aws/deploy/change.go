package deploy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	smithytime "github.com/aws/smithy-go/time"
)

// Change is a planned change to one resource.
type Change struct {
	Action   string   `json:"action"`             // "add", "modify", "replace", "may replace", "remove", "adopt"
	Resource string   `json:"resource"`           // the name in the template
	Type     string   `json:"type"`               // AWS::DynamoDB::Table, …
	Physical string   `json:"physical,omitempty"` // its name, if it has one
	What     []string `json:"what,omitempty"`
}

// loses reports whether users lose access to data through the change, even if the data is kept somewhere.
func (c Change) loses() bool {
	return slices.Contains([]string{"replace", "may replace", "remove"}, c.Action) && slices.Contains(dataTypes, c.Type)
}

const (
	typeStack  = "AWS::CloudFormation::Stack"
	typeTable  = "AWS::DynamoDB::Table"
	typeBucket = "AWS::S3::Bucket"
	typeLambda = "AWS::Lambda::Function"
)

// dataTypes are the types of resources that cannot be recreated.
var dataTypes = []string{typeTable, typeBucket}

func changeOf(r *types.ResourceChange) Change {
	c := Change{
		Resource: aws.ToString(r.LogicalResourceId), Type: aws.ToString(r.ResourceType),
		Physical: aws.ToString(r.PhysicalResourceId),
	}
	switch r.Action {
	case types.ChangeActionAdd:
		c.Action = "add"
	case types.ChangeActionRemove:
		c.Action = "remove"
	case types.ChangeActionImport:
		c.Action = "adopt"
	default: // Modify, and Dynamic, which means not known yet
		c.Action = "modify"
		switch r.Replacement {
		case types.ReplacementTrue:
			c.Action = "replace"
		case types.ReplacementConditional:
			c.Action = "may replace"
		case types.ReplacementFalse:
		}
	}
	for _, d := range r.Details {
		if t := d.Target; t != nil {
			c.What = append(c.What, detail(t))
		}
	}
	slices.Sort(c.What)
	c.What = slices.Compact(c.What)
	return c
}

// detail describes in words what changes about a resource.
func detail(t *types.ResourceTargetDefinition) string {
	what := aws.ToString(t.Name)
	if what == "" {
		what = strings.ToLower(string(t.Attribute)) // Tags, Metadata, …
	}
	was, is := short(aws.ToString(t.BeforeValue)), short(aws.ToString(t.AfterValue))
	switch {
	case was != "" && is != "":
		return what + " " + was + " to " + is
	case is != "":
		return what + " " + is
	}
	return what
}

// short returns value, or "" if it is too long to read.
func short(value string) string {
	if len(value) > 60 || strings.ContainsAny(value, "{[\n") {
		return ""
	}
	return value
}

// changeSet is a change set that CloudFormation has computed.
type changeSet struct {
	id, stack string // IDs
	fresh     bool   // the stack was created for it, and is empty
	changes   []Change
}

// changeTimeout limits how long CloudFormation may take to compute a change set.
const changeTimeout = 10 * time.Minute

var errNothing = errors.New("nothing to change")

// reckon creates a change set and waits until CloudFormation has computed it. If nothing would change, the error is
// errNothing. Even on failure, cs identifies what was created.
func (f *formation) reckon(
	ctx context.Context, in *cloudformation.CreateChangeSetInput, fresh bool,
) (cs changeSet, err error) {
	in.ChangeSetName = aws.String("weir-" + strings.ToLower(rand.Text()))
	out, err := f.CreateChangeSet(ctx, in)
	if err != nil {
		if unchanged(err.Error()) {
			return cs, errNothing
		}
		return cs, err
	}
	cs = changeSet{id: aws.ToString(out.Id), stack: aws.ToString(out.StackId), fresh: fresh}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for {
		got, err := f.DescribeChangeSet(ctx, &cloudformation.DescribeChangeSetInput{
			ChangeSetName: &cs.id, StackName: &cs.stack, IncludePropertyValues: aws.Bool(true),
		})
		if err != nil {
			return cs, err
		}
		switch got.Status {
		case types.ChangeSetStatusCreateComplete:
			return cs, f.readChanges(ctx, &cs, got)
		case types.ChangeSetStatusFailed:
			reason := aws.ToString(got.StatusReason)
			if unchanged(reason) {
				return cs, errNothing
			}
			return cs, fmt.Errorf("the change was refused: %s", reasonText(reason))
		default:
		}
		if err := smithytime.SleepWithContext(ctx, f.poll); err != nil {
			return cs, err
		}
	}
}

// readChanges reads all pages of a change set.
func (f *formation) readChanges(
	ctx context.Context, cs *changeSet, page *cloudformation.DescribeChangeSetOutput,
) (err error) {
	for {
		for _, c := range page.Changes {
			if c.ResourceChange != nil {
				cs.changes = append(cs.changes, changeOf(c.ResourceChange))
			}
		}
		if aws.ToString(page.NextToken) == "" {
			break
		}
		in := &cloudformation.DescribeChangeSetInput{
			ChangeSetName: &cs.id, StackName: &cs.stack, IncludePropertyValues: aws.Bool(true),
			NextToken: page.NextToken,
		}
		if page, err = f.DescribeChangeSet(ctx, in); err != nil {
			return err
		}
	}
	slices.SortStableFunc(cs.changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(rank(a.Action), rank(b.Action)), cmp.Compare(a.Resource, b.Resource))
	})
	return nil
}

// rank orders changes, the most disruptive first.
func rank(action string) int {
	return slices.Index([]string{"remove", "replace", "may replace", "modify", "adopt", "add"}, action)
}

// forget deletes a change set that was not executed, and the stack if it was created only for it and is still empty. It
// does so even if ctx is done.
func (f *formation) forget(ctx context.Context, cs changeSet) error {
	if cs.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	_, err := f.DeleteChangeSet(ctx, &cloudformation.DeleteChangeSetInput{
		ChangeSetName: &cs.id, StackName: &cs.stack,
	})
	if code(err) == "ChangeSetNotFound" {
		err = nil
	}
	if !cs.fresh {
		return err
	}
	st, err2 := f.find(ctx, cs.stack) // by now somebody may create it, or this process, if an answer was lost
	if st != nil && st.StackStatus == types.StackStatusReviewInProgress {
		_, err2 = f.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &cs.stack})
	}
	return errors.Join(err, err2)
}
