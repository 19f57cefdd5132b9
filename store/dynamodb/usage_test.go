package dynamodb_test

import (
	"errors"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/store"
)

// TestUsageWithoutLeave checks that usage that nothing books has a reason, that whoever may not read whether anything books
// it gets an empty page, and that other failures of that read are errors.
func TestUsageWithoutLeave(t *testing.T) {
	t.Parallel()
	denied, broken := &smithy.GenericAPIError{Code: "AccessDeniedException"}, &smithy.GenericAPIError{Code: "ValidationException"}
	for _, tt := range []struct {
		name  string
		read  error // of the item that is written when booking begins
		known bool
		want  error
	}{
		{name: "nothing books", want: store.ErrNoUsage},
		{name: "may not be read", read: denied},
		{name: "cannot be read", read: broken, want: broken},
		{name: "not asked", known: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			s := st.open()
			st.want(s, true, of(bkt("a"), per("rpm", 60, time.Minute, 60), 1)) // reads the table's version
			st.fake.Before = func(_ string, in any) error {
				if get, ok := in.(*sdk.BatchGetItemInput); ok && ofRegistry(get.RequestItems[stageTable].Keys[0]) {
					return tt.read
				}
				return nil
			}
			page, err := s.Usage(t.Context(), store.UsageQuery{
				Namespace: bkt("a").Namespace, Of: store.OfNamespace, Window: store.Daily, Known: tt.known,
			})
			if !errors.Is(err, tt.want) || len(page.Records) > 0 {
				t.Errorf("%d records, error %v, want none and %v", len(page.Records), err, tt.want)
			}
		})
	}
}
