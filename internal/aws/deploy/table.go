package deploy

import (
	"context"
	"strconv"

	"github.com/weirlimits/weir/internal/aws/stack"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// Table creates only the table of a deployment, without CloudFormation, or completes a table of weir's. A stack of
// that name deployed later adopts it. A dry run only inspects.
func (d *Deployer) Table(ctx context.Context, req Request) (driver.Report, error) {
	t, err := stack.Load(stack.Weir)
	if err != nil {
		return driver.Report{}, err
	}
	p, err := d.plan(t, req, &Stack{})
	if err != nil {
		return driver.Report{}, err
	}
	if req.DryRun {
		return driver.Check(ctx, d.cfg.Tables, req.Stack)
	}
	days, err := strconv.Atoi(p.full["PitrDays"])
	if err != nil {
		return driver.Report{}, err
	}
	return driver.Create(ctx, d.cfg.Tables, req.Stack, driver.CreateConfig{
		Tags: p.tags, Stream: true, PITR: days > 0, PITRDays: days,
		DeletionProtection: p.full["DeletionProtection"] == "true", KMSKey: p.full["KmsKey"],
	})
}
