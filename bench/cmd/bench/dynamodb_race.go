package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/store/dynamodb"
)

const (
	raceTokens    = 1000
	raceRequests  = 6000
	raceInstances = 16
)

// raced is how a bucket fares that instances race for.
type raced struct{ admitted, failed float64 }

// raceRows say what is admitted, which is all that counts: at most what the bucket holds.
func raceRows() []row {
	const what = "dynamodb: 1,000 tokens hit 6,000 times by 16 instances: "
	runs := []struct {
		name string
		run  func() (raced, error)
	}{
		{"weir", sync.OnceValues(raceWeir)},
		{"read and write", sync.OnceValues(func() (raced, error) { return raceReaders(false) })},
		{"the same, checked", sync.OnceValues(func() (raced, error) { return raceReaders(true) })},
	}
	var admitted, failed []contender
	for _, r := range runs {
		admitted = append(admitted, contender{name: r.name, size: func(*env) (float64, error) {
			res, err := r.run()
			return res.admitted, err
		}})
		failed = append(failed, contender{name: r.name, size: func(*env) (float64, error) {
			res, err := r.run()
			return res.failed, err
		}})
	}
	return []row{
		{name: what + "admitted", unit: admissions, contenders: admitted, target: target{value: raceTokens}},
		{name: what + "errors", unit: failures, contenders: failed},
	}
}

// race has instances ask, each in its own time.
func race(ask func(instance int) (bool, error)) raced {
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range raceInstances {
		wg.Go(func() {
			for range raceRequests / raceInstances {
				ok, err := ask(i)
				switch {
				case err != nil:
					failed.Add(1)
				case ok:
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return raced{float64(admitted.Load()), float64(failed.Load())}
}

func raceWeir() (res raced, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e := &env{ctx: ctx}
	defer func() { err = firstOf(err, e.close()) }()
	client, err := dynamoClient(e)
	if err != nil {
		return res, err
	}
	lims, err := onDynamo(e, client, raceInstances, weir.PerDay("rpd", 1).WithBurst(raceTokens))
	if err != nil {
		return res, err
	}
	return race(func(i int) (bool, error) { return lims[i].Allow(ctx, "alice", resource) }), nil
}

// reader is a token bucket that reads its state, changes it and writes it back, as mennanov/limiters' on DynamoDB does.
// With check its write fails if the state changed in between, unless it read that there was none yet.
type reader struct {
	client *counted
	table  string
	check  bool
}

var errRace = errors.New("the bucket changed between read and write")

func (b *reader) allow(ctx context.Context) (bool, error) {
	key := map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: "bucket"}, "SK": &types.AttributeValueMemberS{Value: "state"},
	}
	consistent := true
	got, err := b.client.GetItem(ctx, &sdk.GetItemInput{TableName: &b.table, Key: key, ConsistentRead: &consistent})
	if err != nil {
		return false, err
	}
	available, version, last := int64(raceTokens), int64(0), time.Now().Unix()
	if got.Item != nil {
		available, version, last = integer(got.Item["Available"]), integer(got.Item["Version"]), integer(got.Item["Last"])
	}
	if refill := (time.Now().Unix() - last) / (24 * 60 * 60); refill > 0 {
		available, last = min(raceTokens, available+refill), time.Now().Unix()
	}
	if available < 1 {
		return false, nil
	}
	key["Available"], key["Version"], key["Last"] = decimal(available-1), decimal(version+1), decimal(last)
	put := &sdk.PutItemInput{TableName: &b.table, Item: key}
	if b.check && version > 0 {
		condition := "Version <= :version"
		put.ConditionExpression = &condition
		put.ExpressionAttributeValues = map[string]types.AttributeValue{":version": decimal(version)}
	}
	_, err = b.client.PutItem(ctx, put)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		err = errRace
	}
	return err == nil, err
}

func integer(v types.AttributeValue) int64 {
	n, _ := v.(*types.AttributeValueMemberN)
	i, _ := strconv.ParseInt(n.Value, 10, 64)
	return i
}

func decimal(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func raceReaders(check bool) (res raced, err error) {
	ctx := context.Background()
	client, err := dynamoClient(&env{ctx: ctx})
	if err != nil {
		return res, err
	}
	b := &reader{client: client, table: "bench-" + rand.Text(), check: check}
	if _, err := dynamodb.Create(ctx, client, b.table, dynamodb.CreateConfig{}); err != nil {
		return res, err
	}
	return race(func(int) (bool, error) { return b.allow(ctx) }), nil
}
