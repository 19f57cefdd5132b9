package table

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// frozen never answers.
type frozen struct{ API }

func (frozen) BatchGetItem(
	ctx context.Context, _ *dynamodb.BatchGetItemInput, _ ...func(*dynamodb.Options),
) (*dynamodb.BatchGetItemOutput, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestTimelyInTime checks that a caller who waits for the first answer, which another one fetches, waits no longer than
// its context allows.
func TestTimelyInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tb := New(Config{Client: frozen{}, Table: "t", WriteTimeout: time.Second})
		go func() { _ = tb.Timely(t.Context(), VersionKey()) }()
		synctest.Wait()
		const within = 10 * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		began := time.Now()
		err := tb.Timely(ctx, VersionKey())
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != within {
			t.Errorf("took %v, error %v", took, err)
		}
		time.Sleep(time.Minute) // the first one has given up
	})
}
