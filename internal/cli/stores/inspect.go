package stores

import (
	"context"
	"errors"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb"
	"github.com/weirlimits/weir/store/redis"
)

// Finding is the result of one check of a store.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

func findingOf(name string, err error, detail string) Finding {
	f := Finding{Name: name, OK: err == nil, Detail: detail}
	if err != nil {
		f.Detail = err.Error()
		var known *store.Error
		if errors.As(err, &known) {
			f.Detail, f.Remedy = known.Err.Error(), known.Hint
		}
	}
	return f
}

// Creation describes a DynamoDB table to create.
type Creation = dynamodb.CreateConfig

// Inspect checks whether a store can be used. It changes nothing, but for a DynamoDB table if create is not nil: it
// then creates the table first, or completes it. Trouble is a finding; an error is a mistake in the address.
func Inspect(ctx context.Context, address string, create *Creation) ([]Finding, error) {
	k, rest, err := kindOf(address)
	switch {
	case err != nil:
		return nil, err
	case k.inspect != nil:
		return k.inspect(ctx, address, rest, create)
	}
	st, err := k.open(address, rest, opening{})
	if err == nil {
		err = st.Close()
	}
	var bad AddressError
	if errors.As(err, &bad) {
		return nil, err
	}
	return []Finding{findingOf("store", err, "opens")}, nil
}

func inspectRedis(ctx context.Context, address, _ string, _ *Creation) (all []Finding, err error) {
	for _, f := range redis.Inspect(ctx, redisConfig(address)) {
		if errors.Is(f.Err, store.ErrInvalid) {
			return nil, AddressError{f.Err}
		}
		all = append(all, findingOf(f.Name, f.Err, f.Detail))
	}
	return all, nil
}

func inspectDynamo(ctx context.Context, address, rest string, create *Creation) (all []Finding, err error) {
	add := func(name string, err error, detail string) { all = append(all, findingOf(name, err, detail)) }
	d, err := parseDynamo(address, rest)
	if err != nil {
		return nil, err
	}
	cfg, err := d.AWS(ctx)
	if err != nil {
		add("configuration", err, "")
		return all, nil
	}
	switch {
	case d.Endpoint != "":
		add("endpoint", nil, d.Endpoint)
	case cfg.Region == "":
		add(
			"region",
			&store.Error{Err: errors.New("is not set"), Hint: "set region= in the store's URL, or AWS_REGION"}, "",
		)
		return all, nil
	default:
		add("region", nil, cfg.Region)
	}
	who, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		add(
			"credentials",
			&store.Error{
				Err:  errors.New("none found"),
				Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile, or give the machine a role",
			},
			"",
		)
		return all, nil //nolint:nilerr // reported as a finding
	}
	add("credentials", nil, "from "+who.Source)
	client := d.client(cfg)
	var report dynamodb.Report
	if create != nil {
		report, err = dynamodb.Create(ctx, client, d.table, *create)
	} else {
		report, err = dynamodb.Check(ctx, client, d.table)
	}
	for _, f := range report.Findings {
		all = append(all, Finding(f))
	}
	if err != nil {
		add("table", err, "")
	}
	return all, nil
}
