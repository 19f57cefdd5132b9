package dynamotest

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// TestReservedWords checks with the engine each name of up to two letters: it refuses the same ones.
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
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for _, a := range letters {
		for _, b := range " " + letters {
			word := strings.TrimSpace(string(a) + string(b))
			if refused := get(word) != ""; refused != reserved[word] {
				t.Errorf("%q: the engine refuses it: %t", word, refused)
			}
		}
	}
}
