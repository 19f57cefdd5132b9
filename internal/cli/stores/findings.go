package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
)

// held returns the findings about what a store holds: whose share of the limits, and whether usage is booked.
func held(ctx context.Context, st store.Store) (all []Finding) {
	if f := cellFinding(ctx, st); f.Name != "" {
		all = append(all, f)
	}
	if f := limitsFinding(ctx, st); f.Name != "" {
		all = append(all, f)
	}
	return append(all, usageFinding(ctx, st))
}

// limitsFinding returns nothing about a store that is no registry of cells.
func limitsFinding(ctx context.Context, st store.Store) Finding {
	v, err := cells.Registry{Catalog: st}.Inspect(ctx)
	switch {
	case err != nil:
		return findingOf(limitsOfCells, err, "")
	case len(v.Cells) == 0:
		return Finding{}
	}
	return differFinding(&v)
}

const limitsOfCells = "limits of cells"

// differFinding judges whether two cells go by different limits, so that together they may admit more than either.
func differFinding(v *cells.View) Finding {
	if len(v.Differ) > 0 {
		return Finding{
			Name: limitsOfCells, Detail: "differ in " + strings.Join(v.Differ, ", "),
			Remedy: "compare them in the cells' stores, and copy them from one store with weir serve --mirror",
		}
	}
	return findingOf(limitsOfCells, nil, "do not differ, as far as cells are asked for the same entities")
}

// cellFinding returns nothing about a store that belongs to no cell.
func cellFinding(ctx context.Context, st store.Store) Finding {
	const name = "cell"
	owner, err := cells.Owner(ctx, st)
	if err != nil || owner == "" {
		if err == nil {
			return Finding{}
		}
		return findingOf(name, err, "")
	}
	of, err := cells.Follow(ctx, st, owner)
	if err != nil {
		return findingOf(name, err, "")
	}
	share := of.Share(cells.Default).Num
	f := Finding{Name: name, OK: share > 0, Detail: fmt.Sprintf("%s, with %.1f %% of the limits", owner,
		100*cells.Fraction(share))}
	if !f.OK {
		f.Remedy = "it is joining, or was drained: see weir cell list, with --store of the registry"
	}
	return f
}

// passes is a store whose buckets a reader of usage passes over; see [redis.Store.Booked].
type passes interface {
	Booked(context.Context) (at time.Time, apart time.Duration, err error)
}

// usageFinding reports whether usage is booked, and how far the reader is behind. No decision depends on it, so that it
// is no problem if none is; it is one if a reader loses what was spent.
func usageFinding(ctx context.Context, st store.Store) Finding {
	const name = "usage"
	reads, ok := st.(store.Usage)
	if !ok {
		return findingOf(name, nil, store.ErrNoUsage.Error())
	}
	now := time.Now()
	_, keeps := st.(store.Exclusive) // usage itself: what it has already counted is enough, and nothing is written
	_, err := reads.Usage(ctx, store.UsageQuery{
		Of: store.OfStore, Window: store.Hourly, From: now.Add(-time.Hour), To: now, Max: 1, Known: keeps,
	})
	if errors.Is(err, store.ErrNoUsage) {
		return findingOf(name, nil, err.Error())
	}
	by, ok := st.(passes)
	if err != nil || !ok {
		return findingOf(name, err, "is kept")
	}
	at, apart, err := by.Booked(ctx)
	if err != nil {
		return findingOf(name, err, "")
	}
	return passedFinding(now.Sub(at), apart)
}

// passedFinding judges how long ago a reader of usage passed over the buckets, by how far apart passes may be.
func passedFinding(ago, apart time.Duration) Finding {
	ago = max(0, ago.Round(time.Second))
	f := Finding{Name: "usage", OK: ago < apart, Detail: fmt.Sprintf("is kept, and was last booked %s ago", ago)}
	if !f.OK {
		f.Detail += fmt.Sprintf(": after %s, what buckets that expire had counted is lost", apart)
		f.Remedy = "run weir serve --aggregate, or weir aggregate, all the time"
	}
	return f
}

const (
	// muchBehind is a lag that a reader of a table's stream should not have.
	muchBehind = 5 * time.Minute
	// farBehind is a lag at which usage is about to be lost: a stream keeps records for a day.
	farBehind = 12 * time.Hour
)

// lagFinding judges how old the oldest change is that no weir aggregate has counted; read is whether one has ever run.
func lagFinding(lag time.Duration, read bool, err error) Finding {
	f := Finding{Name: "aggregator", OK: err != nil || lag < farBehind}
	lag = max(0, lag.Round(time.Second))
	switch {
	case err != nil:
		f.Detail = "its lag is not known: " + reason(err)
		f.Remedy = "permit dynamodb:DescribeStream, GetShardIterator and GetRecords to see it"
	case !read:
		f.Detail = "weir aggregate has not read the stream"
		f.Remedy = "if a function of a stack reads it, see weir aws status NAME; otherwise run weir aggregate"
	case lag < muchBehind:
		f.Detail = fmt.Sprintf("is %s behind", lag)
	default:
		f.Detail = fmt.Sprintf("is %s behind; the stream keeps records for a day", lag)
		f.Remedy = "see that weir aggregate runs, and its log; run more of them if it is too slow"
	}
	return f
}

// describer is the part of DynamoDB's client that shows how a table is kept.
type describer interface {
	DescribeTable(
		context.Context, *awsdynamodb.DescribeTableInput, ...func(*awsdynamodb.Options),
	) (*awsdynamodb.DescribeTableOutput, error)
	DescribeContinuousBackups(
		context.Context, *awsdynamodb.DescribeContinuousBackupsInput, ...func(*awsdynamodb.Options),
	) (*awsdynamodb.DescribeContinuousBackupsOutput, error)
}

// keptFindings returns what of a usable table is worth an operator's decision. None of it keeps weir from deciding.
func keptFindings(ctx context.Context, c describer, table string) []Finding {
	return []Finding{streamFinding(ctx, c, table), backupFinding(ctx, c, table)}
}

func streamFinding(ctx context.Context, c describer, table string) Finding {
	f := Finding{Name: "stream", OK: true}
	out, err := c.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		f.Detail = "is not known: " + reason(err)
		return f
	}
	spec := out.Table.StreamSpecification
	switch {
	case spec == nil || !aws.ToBool(spec.StreamEnabled):
		f.Detail = "is off: no usage is booked"
		f.Remedy = "for usage, run weir aggregate --enable-stream, or weir aws deploy"
	case spec.StreamViewType != types.StreamViewTypeNewAndOldImages:
		f.Detail = "has " + string(spec.StreamViewType) + ": no usage is booked"
		f.Remedy = "for usage, turn it off, then on again with NEW_AND_OLD_IMAGES"
	default:
		f.Detail = "is on"
	}
	return f
}

func backupFinding(ctx context.Context, c describer, table string) Finding {
	f := Finding{Name: "point-in-time recovery", OK: true}
	out, err := c.DescribeContinuousBackups(ctx, &awsdynamodb.DescribeContinuousBackupsInput{TableName: &table})
	if err != nil {
		f.Detail = "is not known: " + reason(err)
		f.Remedy = "permit dynamodb:DescribeContinuousBackups to see it"
		return f
	}
	if d := out.ContinuousBackupsDescription; d != nil && d.PointInTimeRecoveryDescription != nil &&
		d.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled {
		f.Detail = "is on"
		return f
	}
	f.Detail = "is off: limits and balances that are deleted cannot be restored"
	f.Remedy = "weir doctor --create-table --pitr"
	return f
}

// reason returns the code of an answer with which AWS refused a call, or the whole error.
func reason(err error) string {
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		return refused.ErrorCode()
	}
	return findingOf("", err, "").Detail
}
