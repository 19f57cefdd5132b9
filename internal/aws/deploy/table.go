package deploy

import (
	"context"

	"github.com/weirlimits/weir/internal/aws/cloud"
	driver "github.com/weirlimits/weir/store/dynamodb"
)

// Table creates only the table of a deployment, without CloudFormation, or completes a table of weir's. A stack of
// that name deployed later adopts it. A dry run only inspects.
func (d *Deployer) Table(ctx context.Context, p cloud.Params, dry bool) (driver.Report, error) {
	p.Version = d.cfg.Version
	if err := p.Check(); err != nil {
		return driver.Report{}, err
	}
	if dry {
		return driver.Check(ctx, d.cfg.Tables, p.Stack)
	}
	return driver.Create(ctx, d.cfg.Tables, p.Stack, driver.CreateConfig{
		Tags: p.AllTags(), Stream: true, PITR: p.PITRDays > 0, PITRDays: p.PITRDays,
		DeletionProtection: p.DeletionProtection, KMSKey: p.KMSKey,
	})
}
