// Command copytable fills a table and copies it with eight goroutines, within a budget of write capacity. To watch the
// limit hold:
//
//	go run ./governor/examples/copytable -endpoint http://127.0.0.1:8000
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimits/weir/governor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "copytable:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("copytable", flag.ContinueOnError)
	endpoint := flags.String("endpoint", "", "`URL` of a local DynamoDB engine")
	items := flags.Int("items", 2000, "how many items to copy")
	rate := flags.Float64("write", 200, "write capacity units a second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *endpoint == "" {
		return errors.New("say where a local DynamoDB engine listens: -endpoint http://127.0.0.1:8000")
	}
	cfg := aws.Config{
		Region: "us-east-1", BaseEndpoint: endpoint,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
	}

	from, to, err := prepare(ctx, dynamodb.NewFromConfig(cfg), *items)
	if err != nil {
		return err
	}
	fmt.Fprintf(
		out, "%s has %d items; copying to %s with %d goroutines at %g write units a second\n", from, *items, to,
		segments, *rate,
	)

	// These three lines are all that the governor needs.
	g, err := governor.New(governor.Config{ReadUnits: governor.Unlimited, WriteUnits: *rate})
	if err != nil {
		return err
	}
	cfg.APIOptions = append(cfg.APIOptions, g.Middleware())

	reporting, done := context.WithCancel(ctx)
	defer done()
	go g.Report(reporting, out, time.Second)
	began := time.Now()
	if err := copyTable(ctx, dynamodb.NewFromConfig(cfg), from, to); err != nil {
		return err
	}
	took := time.Since(began)
	for _, b := range g.Status().Budgets {
		fmt.Fprintf(
			out, "%g write units in %.1f s; the budget allowed %.0f\n", b.Consumed, took.Seconds(),
			*rate*(took.Seconds()+1),
		)
	}
	return g.Close()
}

const segments = 8

// copyTable contains no code about budgets.
func copyTable(ctx context.Context, c *dynamodb.Client, from, to string) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range int32(segments) {
		group.Go(func() error {
			pages := dynamodb.NewScanPaginator(c, &dynamodb.ScanInput{
				TableName: &from, Segment: aws.Int32(i), TotalSegments: aws.Int32(segments), Limit: aws.Int32(50),
			})
			for pages.HasMorePages() {
				page, err := pages.NextPage(ctx)
				if err != nil {
					return err
				}
				for _, item := range page.Items {
					if _, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: &to, Item: item}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// prepare creates two tables and fills the first.
func prepare(ctx context.Context, c *dynamodb.Client, items int) (from, to string, err error) {
	suffix := strings.ToLower(rand.Text()[:6])
	from, to = "copy-from-"+suffix, "copy-to-"+suffix
	for _, name := range []string{from, to} {
		if _, err := c.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: &name, BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{
				{AttributeName: aws.String("pk"), AttributeType: types.ScalarAttributeTypeS},
			},
			KeySchema: []types.KeySchemaElement{
				{AttributeName: aws.String("pk"), KeyType: types.KeyTypeHash},
			},
		}); err != nil {
			return "", "", err
		}
		if err := dynamodb.NewTableExistsWaiter(c).Wait(
			ctx, &dynamodb.DescribeTableInput{TableName: &name}, time.Minute,
		); err != nil {
			return "", "", err
		}
	}
	const batch = 25
	for i := 0; i < items; i += batch {
		var writes []types.WriteRequest
		for n := i; n < min(i+batch, items); n++ {
			item := map[string]types.AttributeValue{
				"pk":    &types.AttributeValueMemberS{Value: "order#" + strconv.Itoa(n)},
				"total": &types.AttributeValueMemberN{Value: strconv.Itoa(n % 500)},
			}
			writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
		}
		if _, err := c.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{
			RequestItems: map[string][]types.WriteRequest{from: writes},
		}); err != nil {
			return "", "", err
		}
	}
	return from, to, nil
}
