package lab

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/spf13/pflag"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/lab/consumed"
)

// ofTraffic returns those of a command's own flags that do not apply to a table's measured units.
func ofTraffic(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains([]string{"from-table", "days", "prices"}, f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// runMeasured prices what a table consumed.
func runMeasured(ctx context.Context, a *kit.Run, q *costFlags) error {
	prices, err := priceList(q.Prices)
	if err != nil {
		return err
	}
	address := q.Table
	if !strings.Contains(address, ":") {
		address = "dynamodb://" + address
	}
	if scheme, _, err := storeurl.Split(secret.Address(address)); err != nil || scheme != "dynamodb" {
		return kit.Usagef("--from-table %q is no table: write its name, or dynamodb://weir?region=eu-central-1",
			secret.Address(address))
	}
	d, err := storeurl.ParseDynamoDB(secret.Address(address))
	if err != nil {
		return err
	}
	if d.Endpoint != "" && !d.Local() {
		if err := a.MaySend("an AWS signature", "from-table"); err != nil {
			return err
		}
	}
	cfg, err := d.AWS(ctx)
	if err != nil {
		return err
	}
	if cfg.Region == "" {
		return kit.Usagef("--from-table: no region: write dynamodb://%s?region=…, or set AWS_REGION", d.Table)
	}
	metrics := cloudwatch.NewFromConfig(cfg, func(o *cloudwatch.Options) {
		if d.Endpoint != "" {
			o.BaseEndpoint = &d.Endpoint
		}
	})
	m, err := consumed.Of(ctx, metrics, d.Client(cfg), d.Table, q.Days, time.Now())
	if err != nil {
		return err
	}
	b := m.Price(prices)
	return a.Print(b, func() { Show(a, b.Document()) })
}
