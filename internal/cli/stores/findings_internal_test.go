package stores

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/memory"
)

// described is a table as AWS describes it.
type described struct {
	stream  *types.StreamSpecification
	backups types.PointInTimeRecoveryStatus
	err     error // of the backups
}

func (d described) DescribeTable(
	context.Context, *awsdynamodb.DescribeTableInput, ...func(*awsdynamodb.Options),
) (*awsdynamodb.DescribeTableOutput, error) {
	return &awsdynamodb.DescribeTableOutput{Table: &types.TableDescription{StreamSpecification: d.stream}}, nil
}

func (d described) DescribeContinuousBackups(
	context.Context, *awsdynamodb.DescribeContinuousBackupsInput, ...func(*awsdynamodb.Options),
) (*awsdynamodb.DescribeContinuousBackupsOutput, error) {
	return &awsdynamodb.DescribeContinuousBackupsOutput{ContinuousBackupsDescription: &types.ContinuousBackupsDescription{
		PointInTimeRecoveryDescription: &types.PointInTimeRecoveryDescription{PointInTimeRecoveryStatus: d.backups},
	}}, d.err
}

// What a table lacks for usage and for being restored is reported with what to do, and is no failure.
func TestKeptFindings(t *testing.T) {
	t.Parallel()
	stream := func(v types.StreamViewType) *types.StreamSpecification {
		return &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: v}
	}
	on, off := types.PointInTimeRecoveryStatusEnabled, types.PointInTimeRecoveryStatusDisabled
	for name, tt := range map[string]struct {
		table          described
		stream, backup string // the beginning of the detail, and of the remedy if there must be one
	}{
		"all on":      {described{stream: stream(types.StreamViewTypeNewAndOldImages), backups: on}, "is on|", "is on|"},
		"all off":     {described{backups: off}, "is off: no usage|for usage, run", "is off: |weir doctor --create-table --pitr"},
		"other":       {described{stream: stream(types.StreamViewTypeKeysOnly), backups: on}, "has KEYS_ONLY|for usage, turn", "is on|"},
		"not allowed": {described{err: &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "long"}}, "is off|for usage", "is not known: AccessDeniedException|permit dynamodb:Desc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := keptFindings(t.Context(), tt.table, "weir")
			for i, want := range []string{tt.stream, tt.backup} {
				detail, remedy, _ := strings.Cut(want, "|")
				if f := all[i]; !f.OK || !strings.HasPrefix(f.Detail, detail) || !strings.HasPrefix(f.Remedy, remedy) ||
					(remedy == "") != (f.Remedy == "") {
					t.Errorf("%+v, want %q", f, want)
				}
			}
		})
	}
}

// What the registry of cells has found of limits that differ is reported; a store without cells reports nothing.
func TestLimitsFinding(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	defer st.Close()
	if f := limitsFinding(t.Context(), st); f.Name != "" {
		t.Errorf("without cells: %+v", f)
	}
	if err := (cells.Registry{Catalog: st}).Join(t.Context(), "eu-1"); err != nil {
		t.Fatal(err)
	}
	if f := limitsFinding(t.Context(), st); !f.OK || f.Remedy != "" || !strings.HasPrefix(f.Detail, "do not differ") {
		t.Errorf("one cell: %+v", f)
	}
	grants := store.Record{
		Key: store.Key{Namespace: "cells", Kind: "cell-grants"}, Value: []byte(`{"differ":["default","tenant"]}`),
	}
	if err := st.Commit(t.Context(), store.Write{Record: grants}); err != nil {
		t.Fatal(err)
	}
	if f := limitsFinding(t.Context(), st); f.OK || f.Remedy == "" || f.Detail != "differ in default, tenant" {
		t.Errorf("two cells that differ: %+v", f)
	}
}

// How far the readers of usage are behind is reported with what to do; it is a problem only where usage is lost.
func TestLagFindings(t *testing.T) {
	t.Parallel()
	denied := &smithy.GenericAPIError{Code: "AccessDeniedException", Message: "long"}
	for name, tt := range map[string]struct {
		got            Finding
		ok             bool
		detail, remedy string // beginnings
	}{
		"never":      {lagFinding(0, false, nil), true, "weir aggregate has not read the stream", "if a function"},
		"up to date": {lagFinding(1500*time.Millisecond, true, nil), true, "is 2s behind", ""},
		"skewed":     {lagFinding(-time.Second, true, nil), true, "is 0s behind", ""},
		"behind":     {lagFinding(time.Hour, true, nil), true, "is 1h0m0s behind; the stream keeps", "see that weir aggregate runs"},
		"losing":     {lagFinding(13*time.Hour, true, nil), false, "is 13h0m0s behind; the stream keeps", "see that weir aggregate runs"},
		"denied":     {lagFinding(0, true, denied), true, "its lag is not known: AccessDeniedException", "permit dynamodb:"},
		"passed":     {passedFinding(12*time.Second, time.Hour), true, "is kept, and was last booked 12s ago", ""},
		"ahead":      {passedFinding(-time.Second, time.Hour), true, "is kept, and was last booked 0s ago", ""},
		"apart":      {passedFinding(2*time.Hour, time.Hour), false, "is kept, and was last booked 2h0m0s ago: after 1h0m0s", "run weir serve --aggregate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if f := tt.got; f.OK != tt.ok || !strings.HasPrefix(f.Detail, tt.detail) ||
				!strings.HasPrefix(f.Remedy, tt.remedy) || (tt.remedy == "") != (f.Remedy == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}
