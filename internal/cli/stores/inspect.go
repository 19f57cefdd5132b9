package stores

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/api/storeurl"
	"github.com/weirlimits/weir/internal/parts"
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

// Bad reports whether the check found a problem.
func (f Finding) Bad() bool { return !f.OK }

func findingOf(name string, err error, detail string) Finding {
	f := Finding{Name: name, OK: err == nil, Detail: detail}
	if err != nil {
		f.Detail = err.Error()
		if known, ok := errors.AsType[*store.Error](err); ok {
			f.Detail, f.Remedy = known.Err.Error(), known.Hint
		}
		f.Detail = secret.Redact(f.Detail)
	}
	return f
}

// Creation describes a DynamoDB table to create.
type Creation = dynamodb.CreateConfig

// Inspect checks whether a store can be used. It changes nothing, but for a DynamoDB table if create is not nil: it
// then creates the table first, or completes it. Trouble is a finding; an error is a mistake in the address.
func Inspect(ctx context.Context, address secret.Address, create *Creation) ([]Finding, error) {
	k, err := kindOf(address)
	switch {
	case err != nil:
		return nil, err
	case k.inspect != nil:
		all, err := k.inspect(ctx, address, create)
		if err == nil && !slices.ContainsFunc(all, Finding.Bad) {
			all = append(all, overStore(ctx, address)...)
		}
		return all, err
	}
	st, err := Open(address, Existing)
	if _, ok := errors.AsType[AddressError](err); ok {
		return nil, err
	}
	all := []Finding{findingOf("store", err, "opens")}
	if err == nil {
		all = append(all, held(ctx, st)...)
		err = st.Close()
		all[0] = findingOf("store", err, "opens")
	}
	return all, nil
}

const (
	// probes is how many round trips to a store an inspection measures.
	probes = 20
	// mostWithin is the longest time that weir serve takes for a decision.
	mostWithin = time.Second
)

const tripsName = "round trips"

// overStore returns the findings that need an open store.
func overStore(ctx context.Context, address secret.Address) []Finding {
	st, err := Open(address, Existing)
	if err != nil {
		return []Finding{findingOf(tripsName, err, "")}
	}
	defer st.Close()
	return append([]Finding{roundTrips(ctx, st)}, held(ctx, st)...)
}

// roundTrips measures round trips to a store that can be used, and checks that decisions can be made over them.
func roundTrips(ctx context.Context, st store.Store) Finding {
	var trips parts.Trips
	bound, _ := parts.Bound(st, mostWithin, nil, &parts.Parts{Trips: &trips, Ready: &parts.Ready{}})
	err := parts.Probe(ctx, st, 1) // it may have to connect
	if err == nil {
		err = parts.Probe(ctx, bound, probes)
	}
	if err != nil {
		return findingOf(tripsName, err, "")
	}
	f := tripsFinding(trips.Quantile(0.5), trips.Quantile(0.9))
	f.Name = tripsName
	return f
}

// tripsFinding judges round trips by their p90: the longest of few is often due to this machine.
func tripsFinding(p50, p90 time.Duration) Finding {
	cold := parts.Cold(p90)
	f := Finding{OK: cold <= mostWithin, Detail: fmt.Sprintf(
		"p50 %s, p90 %s: a decision whose limits are not cached needs up to %d, %s", p50, p90, parts.ColdTrips, cold)}
	if !f.OK {
		f.Remedy = "run weir closer to the store: --decide-within is at most " + mostWithin.String()
	}
	return f
}

func inspectRedis(ctx context.Context, address secret.Address, _ *Creation) (all []Finding, err error) {
	c, err := storeurl.RedisConfig(address)
	if err != nil {
		return nil, err
	}
	for _, f := range redis.Inspect(ctx, c) {
		if errors.Is(f.Err, store.ErrInvalid) {
			return nil, storeurl.Mistake(f.Err)
		}
		all = append(all, findingOf(f.Name, f.Err, f.Detail))
	}
	return all, nil
}

func inspectDynamo(
	ctx context.Context, address secret.Address, create *Creation,
) (all []Finding, err error) {
	add := func(name string, err error, detail string) { all = append(all, findingOf(name, err, detail)) }
	d, err := storeurl.ParseDynamoDB(address)
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
		add("endpoint", nil, secret.Address(d.Endpoint).String())
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
	client := d.Client(cfg)
	var report dynamodb.Report
	if create != nil {
		report, err = dynamodb.Create(ctx, client, d.Table, *create)
	} else {
		report, err = dynamodb.Check(ctx, client, d.Table)
	}
	for _, f := range report.Findings {
		all = append(all, Finding(f))
	}
	if err != nil {
		add("table", err, "")
	} else if report.OK() {
		all = append(all, keptFindings(ctx, client, d.Table)...)
		if arn, err := streamOf(ctx, client, d.Table, false); err == nil { // otherwise the stream's finding has why
			all = append(all, aggregatorFinding(ctx, &d, arn))
		}
	}
	return all, nil
}
