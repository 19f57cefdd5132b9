package stores

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// DynamoDB is a parsed dynamodb://TABLE?region=…&endpoint=….
type DynamoDB struct {
	table, Region, Endpoint, Profile string

	store dynamodb.Config
}

const dynamoOptions = "region, endpoint, profile, rejection-ttl, prefetch, prefetch-for, max-shards and retention"

// parseDynamo parses the address of a table.
func parseDynamo(address, rest string) (d DynamoDB, err error) {
	table, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if d.table = strings.TrimSuffix(table, "/"); d.table == "" {
		return d, storeUsage("store %q names no table: write dynamodb://weir?region=eu-central-1", address)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return d, storeUsage("store %q: %w", address, err)
	}
	for key, all := range values {
		value := all[len(all)-1]
		var ok bool
		switch key {
		case "region":
			d.Region, ok = value, value != ""
		case "profile":
			d.Profile, ok = value, value != ""
		case "endpoint":
			u, perr := url.Parse(value)
			d.Endpoint, ok = value, perr == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		case "rejection-ttl":
			ok = parseTime(value, &d.store.RejectionTTL, 0, time.Minute)
			if ok && d.store.RejectionTTL == 0 {
				d.store.RejectionTTL = -1 // off
			}
		case "prefetch":
			d.store.Prefetch.Share, err = strconv.ParseFloat(value, 64)
			ok = err == nil && d.store.Prefetch.Share > 0 && d.store.Prefetch.Share <= 1
		case "prefetch-for":
			ok = parseTime(value, &d.store.Prefetch.For, time.Millisecond, time.Second)
		case "max-shards":
			d.store.MaxShards, err = strconv.Atoi(value)
			n := d.store.MaxShards
			ok = err == nil && n >= 1 && n <= 64 && n&(n-1) == 0
		case "retention":
			ok = parseTime(value, &d.store.Retention, time.Second, 366*24*time.Hour)
		default:
			return d, storeUsage("store %q: unknown option %q: the options are %s", address, key, dynamoOptions)
		}
		if !ok {
			return d, storeUsage("store %q: %s=%q is not %s", address, key, value, dynamoWants[key])
		}
	}
	return d, nil
}

// dynamoWants describes the valid values of each option.
var dynamoWants = map[string]string{
	"region": "a region", "profile": "a profile", "endpoint": "an address such as http://127.0.0.1:8000",
	"rejection-ttl": "a duration such as 250ms, at most 1m", "prefetch": "a share above 0, up to 1",
	"prefetch-for": "a duration such as 100ms, at most 1s",
	"max-shards":   "a power of two from 1 to 64", "retention": "a duration such as 48h",
}

func parseTime(value string, to *time.Duration, least, most time.Duration) bool {
	d, err := time.ParseDuration(value)
	*to = d
	return err == nil && d >= least && d <= most
}

// AWS returns the SDK's configuration: the region, credentials and profile of the environment, unless the address
// overrides them. A local endpoint accepts any credentials, so none need to be set for it.
func (d *DynamoDB) AWS(ctx context.Context) (aws.Config, error) {
	var with []func(*awsconfig.LoadOptions) error
	if d.Region != "" {
		with = append(with, awsconfig.WithRegion(d.Region))
	}
	if d.Profile != "" {
		with = append(with, awsconfig.WithSharedConfigProfile(d.Profile))
	}
	if d.local() {
		with = append(with, awsconfig.WithDefaultRegion("us-east-1"),
			awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return cfg, &store.Error{
			Op: "open", Key: d.table, Err: err, Hint: "check the AWS configuration and the profile",
		}
	}
	return cfg, nil
}

// local reports whether the endpoint is on this machine.
func (d *DynamoDB) local() bool {
	u, err := url.Parse(d.Endpoint)
	if d.Endpoint == "" || err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// client returns a DynamoDB client for the address.
func (d *DynamoDB) client(cfg aws.Config) *awsdynamodb.Client {
	return awsdynamodb.NewFromConfig(cfg, dynamodb.Tune, func(o *awsdynamodb.Options) {
		if d.Endpoint != "" {
			o.BaseEndpoint = &d.Endpoint
			// Local emulators send wrong checksums with their errors.
			o.DisableValidateResponseChecksum = d.local()
		}
	})
}

// openDynamo opens the store on an existing table. weir doctor --create-table creates tables.
func openDynamoDB(address, rest string) (store.Store, error) {
	d, err := parseDynamo(address, rest)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second) // enough to find out whether it is there
	defer cancel()
	cfg, err := d.AWS(ctx)
	if err != nil {
		return nil, err
	}
	d.store.Client, d.store.Table = d.client(cfg), d.table
	return dynamodb.Open(ctx, d.store)
}
