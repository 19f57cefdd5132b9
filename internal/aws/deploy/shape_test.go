package deploy_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

var (
	tableKeys       = []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}}
	tableAttributes = []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}}
)

// shape is the set of properties that define a table.
func shape(t *types.TableDescription) string {
	keys := func(all []types.KeySchemaElement) (text string) {
		for _, k := range all {
			text += " " + *k.AttributeName + " " + string(k.KeyType)
		}
		return text
	}
	lines := []string{"keys" + keys(t.KeySchema)}
	for _, d := range t.AttributeDefinitions {
		lines = append(lines, "attribute "+*d.AttributeName+" "+string(d.AttributeType))
	}
	for _, ix := range t.GlobalSecondaryIndexes {
		lines = append(lines, "index "+*ix.IndexName+keys(ix.KeySchema)+" "+string(ix.Projection.ProjectionType))
	}
	lines = append(lines, fmt.Sprint("protected ", aws.ToBool(t.DeletionProtectionEnabled)))
	if s := t.StreamSpecification; s != nil {
		lines = append(lines, "stream "+string(s.StreamViewType))
	}
	if b := t.BillingModeSummary; b != nil {
		lines = append(lines, string(b.BillingMode))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
