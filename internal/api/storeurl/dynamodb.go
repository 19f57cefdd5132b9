package storeurl

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
)

// DynamoDB is a parsed dynamodb://TABLE?region=…&endpoint=….
type DynamoDB struct {
	Table, Region, Endpoint, Profile string

	store dynamodb.Config
}

// dynamoOptions are the options of dynamodb://TABLE?region=…. What is not given stays as the store's default.
type dynamoOptions struct {
	Region       string         `json:"region"`
	Endpoint     string         `json:"endpoint"`
	Profile      string         `json:"profile"`
	RejectionTTL *time.Duration `json:"rejection-ttl" range:"0s..1m"`
	Prefetch     float64        `json:"prefetch" range:"0..1"`
	PrefetchFor  time.Duration  `json:"prefetch-for" range:"1ms..1s"`
	MaxShards    int            `json:"max-shards" values:"1,2,4,8,16,32,64"`
	Retention    time.Duration  `json:"retention" range:"1s..8784h"`
}

// ParseDynamoDB parses the address of a table.
func ParseDynamoDB(address secret.Address) (d DynamoDB, err error) {
	_, rest, _ := strings.Cut(string(address), ":")
	table, query, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if d.Table = strings.TrimSuffix(table, "/"); d.Table == "" {
		return d, Mistakef("store %q names no table: write dynamodb://weir?region=eu-central-1", address)
	}
	var o dynamoOptions
	if err := setOptions(address, query, &o); err != nil {
		return d, err
	}
	u, err := url.Parse(o.Endpoint)
	if o.Endpoint != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return d, Mistakef(
			"store %q: endpoint %q is not an address such as http://127.0.0.1:8000", address,
			secret.Address(o.Endpoint),
		)
	}
	d.Region, d.Endpoint, d.Profile = o.Region, o.Endpoint, o.Profile
	d.store = dynamodb.Config{
		Prefetch:  dynamodb.Prefetch{Share: o.Prefetch, For: o.PrefetchFor},
		MaxShards: o.MaxShards, Retention: o.Retention,
	}
	if o.RejectionTTL != nil {
		d.store.RejectionTTL = cmp.Or(*o.RejectionTTL, -1) // 0 turns it off
	}
	return d, nil
}

// AWS returns the SDK's configuration: the region, credentials and profile of the environment, unless the address
// overrides them. A local endpoint accepts any credentials, so none need to be set for it.
func (d *DynamoDB) AWS(ctx context.Context) (aws.Config, error) {
	var with []func(*awsconfig.LoadOptions) error
	if strings.Trim(d.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" { // it becomes part of a host's name
		return aws.Config{}, Mistakef("region %q is not one such as eu-central-1", d.Region)
	}
	if d.Region != "" {
		with = append(with, awsconfig.WithRegion(d.Region))
	}
	if d.Profile != "" {
		with = append(with, awsconfig.WithSharedConfigProfile(d.Profile))
	}
	if d.Local() {
		with = append(with, awsconfig.WithDefaultRegion("us-east-1"),
			awsconfig.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("local", "local", "")))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if err != nil {
		return cfg, &store.Error{
			Op: "open", Key: d.Table, Err: err, Hint: "check the AWS configuration and the profile",
		}
	}
	return cfg, nil
}

// Local reports whether the endpoint is on this machine.
func (d *DynamoDB) Local() bool {
	u, err := url.Parse(d.Endpoint)
	if d.Endpoint == "" || err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// Client returns a DynamoDB client for the address.
func (d *DynamoDB) Client(cfg aws.Config) *awsdynamodb.Client {
	return awsdynamodb.NewFromConfig(cfg, dynamodb.Tune, func(o *awsdynamodb.Options) {
		if d.Endpoint != "" {
			o.BaseEndpoint = &d.Endpoint
			// Local emulators send wrong checksums with their errors.
			o.DisableValidateResponseChecksum = d.Local()
		}
	})
}

// Open opens the store on an existing table. weir doctor --create-table creates tables.
func (d *DynamoDB) Open(ctx context.Context) (*dynamodb.Store, aws.Config, error) {
	cfg, err := d.AWS(ctx)
	if err != nil {
		return nil, cfg, err
	}
	d.store.Client, d.store.Table = d.Client(cfg), d.Table
	st, err := dynamodb.Open(ctx, d.store)
	return st, cfg, err
}

// openDynamoDB opens the store. Exact, it does without the features that save calls: remembered refusals, tokens
// debited ahead and split buckets. Frugal, it has all of them; those that the address does not set are as by default,
// and a tenth is debited ahead.
func openDynamoDB(ctx context.Context, address secret.Address, _ string, how How) (store.Store, error) {
	d, err := ParseDynamoDB(address)
	if err != nil {
		return nil, err
	}
	c := &d.store
	if how.Exact {
		c.Now, c.RejectionTTL, c.Guard, c.Prefetch, c.MaxShards = how.Now, -1, -1, dynamodb.Prefetch{}, 1
	}
	if how.Frugal {
		c.Now, c.Prefetch.Share = how.Now, cmp.Or(c.Prefetch.Share, 0.1)
	}
	st, _, err := d.Open(ctx)
	return st, err
}
