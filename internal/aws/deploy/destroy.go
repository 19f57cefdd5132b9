package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/weirlimits/weir/internal/aws/stack"
)

// Data is a table or a bucket of a stack: its content cannot be recreated.
type Data struct {
	Resource string
	Type     string
	Name     string
	Kept     bool // when the stack is deleted, according to its template
}

// String names the resource.
func (d Data) String() string {
	if d.Type == typeTable {
		return "table " + d.Name
	}
	return "bucket " + d.Name
}

// Doomed is a stack to destroy.
type Doomed struct {
	Stack Stack
	Data  []Data
}

// Doomed returns what destroying a stack would do. It writes nothing.
func (d *Deployer) Doomed(ctx context.Context, name string) (Doomed, error) {
	found, err := d.formation.find(ctx, name)
	if err != nil {
		return Doomed{}, trouble("inspect", name, err)
	}
	if found == nil {
		return Doomed{}, d.missing(ctx, name)
	}
	doomed := Doomed{Stack: stackOf(found)}
	st := &doomed.Stack
	if !resting(st.State) && st.State != "REVIEW_IN_PROGRESS" {
		return doomed, busy("destroy", name, st.State)
	}
	if tagOf(found, stack.TagStack) == "" {
		return doomed, notOurs("destroy", name)
	}
	if st.State == "REVIEW_IN_PROGRESS" { // nothing was ever created
		return doomed, nil
	}
	template, err := d.cfg.Stacks.GetTemplate(ctx, &cloudformation.GetTemplateInput{StackName: &st.ID})
	if err != nil {
		return doomed, trouble("inspect", name, err)
	}
	doc, err := stack.Parse([]byte(aws.ToString(template.TemplateBody)))
	if err != nil {
		return doomed, trouble("inspect", name, err)
	}
	resources, _ := doc["Resources"].(map[string]any)
	all, err := d.cfg.Stacks.DescribeStackResources(ctx, &cloudformation.DescribeStackResourcesInput{StackName: &st.ID})
	if err != nil {
		return doomed, trouble("inspect", name, err)
	}
	for _, r := range all.StackResources {
		if r.ResourceStatus == types.ResourceStatusDeleteComplete {
			continue
		}
		id, typ, physical := aws.ToString(r.LogicalResourceId), aws.ToString(r.ResourceType), aws.ToString(
			r.PhysicalResourceId,
		)
		if slices.Contains(dataTypes, typ) && physical != "" {
			one, _ := resources[id].(map[string]any)
			doomed.Data = append(doomed.Data, Data{id, typ, physical, one["DeletionPolicy"] == "Retain"})
		}
	}
	return doomed, nil
}

// Destroy deletes a stack as [Deployer.Doomed] saw it. The table and the archive are kept, unless deleteData is set or
// an older weir deployed the stack so that they do not outlive it. If anything is protected, Destroy refuses before it
// does anything.
func (d *Deployer) Destroy(ctx context.Context, doomed Doomed, deleteData bool) error {
	st := &doomed.Stack
	if st.Protected {
		return &Error{
			Op: "destroy", Stack: st.Name, Err: errors.New("the stack is protected from deletion"),
			Hint: "aws cloudformation update-termination-protection --no-enable-termination-protection --stack-name " +
				st.Name,
		}
	}
	var gone, after []Data // what CloudFormation deletes, and what is deleted after it
	for _, x := range doomed.Data {
		switch {
		case !x.Kept:
			gone = append(gone, x)
		case deleteData:
			after = append(after, x)
		}
		if x.Type == typeTable && (deleteData || !x.Kept) {
			if err := d.unprotected(ctx, st.Name, x.Name); err != nil {
				return trouble("destroy", st.Name, err)
			}
		}
	}
	// CloudFormation does not delete a bucket that has content.
	for _, x := range gone {
		if x.Type == typeBucket {
			if err := d.empty(ctx, x.Name); err != nil {
				return trouble("destroy", st.Name, err)
			}
		}
	}
	if err := d.deleteStack(ctx, st, after); err != nil {
		return err
	}
	for i, x := range after {
		if err := d.deleteData(ctx, x); err != nil {
			err := trouble("destroy", st.Name, err)
			return fmt.Errorf("%w; the stack is gone, but these remain: %s", err, listed(after[i:]))
		}
	}
	return nil
}

func listed(all []Data) (text string) {
	for i, x := range all {
		if i > 0 {
			text += " and "
		}
		text += x.String()
	}
	return text
}

func (d *Deployer) unprotected(ctx context.Context, stack, table string) error {
	out, err := d.cfg.Tables.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &table})
	if code(err) == noTable {
		return nil
	}
	if err != nil || !aws.ToBool(out.Table.DeletionProtectionEnabled) {
		return err
	}
	return &Error{
		Op: "destroy", Stack: stack, Err: fmt.Errorf("table %s is protected from deletion", table),
		Hint: "weir aws deploy " + stack + " --deletion-protection=false",
	}
}

// deleteStack deletes a stack. If it is not known whether that succeeds, its error names what is left to delete.
func (d *Deployer) deleteStack(ctx context.Context, st *Stack, left []Data) error {
	state, all, err := d.formation.run(ctx, "destroy", st.Name, st.ID, func() error {
		_, err := d.cfg.Stacks.DeleteStack(ctx, &cloudformation.DeleteStackInput{StackName: &st.ID})
		return err
	})
	switch {
	case err != nil && len(left) > 0:
		return fmt.Errorf("%w; once the stack is gone, delete what it leaves: %s", err, listed(left))
	case err != nil, state == "", state == "DELETE_COMPLETE":
		return err
	}
	return failure("destroy", st.Name, state, all, "fix the cause, then run weir aws destroy "+st.Name+" again")
}

func (d *Deployer) deleteData(ctx context.Context, x Data) error {
	if x.Type == typeTable {
		_, err := d.cfg.Tables.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &x.Name})
		if code(err) == noTable {
			return nil
		}
		return err
	}
	if err := d.empty(ctx, x.Name); err != nil {
		return err
	}
	if _, err := d.cfg.Objects.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &x.Name}); code(err) != "NotFound" {
		return err
	}
	return nil
}

// empty deletes all objects and old versions in a bucket.
func (d *Deployer) empty(ctx context.Context, bucket string) error {
	pages := s3.NewListObjectVersionsPaginator(d.cfg.Objects, &s3.ListObjectVersionsInput{Bucket: &bucket})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if code(err) == "NotFound" {
			return nil
		}
		if err != nil {
			return err
		}
		var all []s3types.ObjectIdentifier
		for _, v := range page.Versions {
			all = append(all, s3types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			all = append(all, s3types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(all) == 0 {
			continue
		}
		if err := deleteObjects(ctx, d.cfg.Objects, bucket, all); err != nil {
			return err
		}
	}
	return nil
}
