package mototest_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/weirlimits/weir/internal/testkit/mototest"
)

func TestServer(t *testing.T) {
	t.Parallel()
	client := sns.NewFromConfig(mototest.Config(t))
	made, err := client.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("mototest")})
	if err != nil {
		t.Fatal(err)
	}
	topics, err := client.ListTopics(t.Context(), &sns.ListTopicsInput{})
	if err != nil || len(topics.Topics) != 1 || *topics.Topics[0].TopicArn != *made.TopicArn {
		t.Fatalf("topics %v, error %v", topics, err)
	}
}
