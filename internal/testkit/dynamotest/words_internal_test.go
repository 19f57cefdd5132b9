package dynamotest

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// TestReservedWords asks the engine about each word: it refuses the same words.
func TestReservedWords(t *testing.T) {
	t.Parallel()
	db, table := Client(t, Engine(t)), Table(t)
	if _, err := db.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &table, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("pk"), KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("pk"), AttributeType: types.ScalarAttributeTypeS}},
	}); err != nil {
		t.Fatal(err)
	}
	get := func(word string) string {
		_, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "x"}}, ProjectionExpression: &word,
		})
		if refused, ok := errors.AsType[smithy.APIError](err); ok {
			return refused.ErrorCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return ""
	}
	if got := get("weir"); got != "" {
		t.Fatalf("an ordinary word: %s", got)
	}
	for word := range reserved {
		if get(word) == "" {
			t.Errorf("the engine takes %q", word)
		}
	}
	if len(reserved) != 573 {
		t.Errorf("%d words, want 573", len(reserved))
	}
}
