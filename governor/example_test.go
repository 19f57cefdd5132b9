package governor_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/weirlimits/weir/governor"
)

// inPlaceOfAWS lets the examples run without a network. Every read costs 50 units.
var inPlaceOfAWS = &stub{answer: answering(200, consumed("50"))}

func Example() {
	cfg := aws.Config{Region: "eu-west-1", HTTPClient: inPlaceOfAWS, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}

	g, err := governor.New(governor.Config{ReadUnits: 100, WriteUnits: 50, MaxWait: 100 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	cfg.APIOptions = append(cfg.APIOptions, g.Middleware())
	client := dynamodb.NewFromConfig(cfg) // use it as usual

	for range 3 {
		_, err := client.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key})
		if wait, ok := errors.AsType[*governor.WaitError](err); ok {
			fmt.Println(wait.Direction, "budget: too long a wait")
		} else {
			fmt.Println("done")
		}
	}
	fmt.Println(g.Status().Budgets[0].Consumed, "read units")
	// Output:
	// done
	// done
	// read budget: too long a wait
	// 100 read units
}

// Two processes, here two governors, share 1,000 write units a second.
func ExampleNew_fleet() {
	coordinator := &governor.Memory{} // across processes, use package s3coord or storecoord
	cfg := governor.Config{ReadUnits: governor.Unlimited, WriteUnits: 1000, Coordinator: coordinator}
	one, err := governor.New(cfg)
	if err != nil {
		panic(err)
	}
	defer one.Close()
	two, err := governor.New(cfg)
	if err != nil {
		panic(err)
	}
	defer two.Close()
	view, err := governor.Inspect(context.Background(), coordinator)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(view.Workers), "workers, epoch", view.Epoch)
	// Output: 2 workers, epoch 1
}
