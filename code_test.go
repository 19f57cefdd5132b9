package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimits/weir"
	"github.com/weirlimits/weir/admin"
	"github.com/weirlimits/weir/store"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	failed := &weir.StoreError{Op: "take", Err: errors.New("reset")}
	seen := make(map[weir.Code]bool)
	for _, tt := range []struct {
		err  error
		want weir.Code
	}{
		{nil, weir.CodeOK},
		{errors.New("other"), weir.CodeInternal},
		{&weir.ConfigError{Field: "limits", Reason: "none"}, weir.CodeInvalid},
		{weir.ErrBadCursor, weir.CodeInvalid},
		{&weir.ExceededError{}, weir.CodeExceeded},
		{&weir.RequestError{Index: 1, Err: &weir.ExceededError{}}, weir.CodeExceeded},
		{&weir.BurstError{}, weir.CodeExceedsBurst},
		{&weir.NoLimitsError{}, weir.CodeNoLimits},
		{fmt.Errorf("entity: %w", weir.ErrNotFound), weir.CodeNotFound},
		{weir.ErrNoUsage, weir.CodeNoUsage},
		{weir.ErrExists, weir.CodeExists},
		{weir.ErrConflict, weir.CodeConflict},
		{&admin.LockedError{}, weir.CodeConflict},
		{weir.ErrSettled, weir.CodeSettled},
		{weir.ErrCommitted, weir.CodeSettled},
		{weir.ErrRolledBack, weir.CodeSettled},
		{weir.ErrExpired, weir.CodeExpired},
		{weir.ErrUnavailable, weir.CodeUnavailable},
		{weir.ErrClosed, weir.CodeUnavailable},
		{failed, weir.CodeUnavailable},
		{context.DeadlineExceeded, weir.CodeUnavailable},
		{context.Canceled, weir.CodeCanceled},
		{&weir.DebtError{}, weir.CodeMaxDebt},
		{fmt.Errorf("request: %w", weir.ErrUnknownEntity), weir.CodeUnknownEntity},
		{&store.BucketQuotaError{}, weir.CodeBucketQuota},
		// What matters more comes first.
		{errors.Join(weir.ErrNotFound, failed), weir.CodeUnavailable},
		{errors.Join(context.Canceled, weir.ErrUnavailable), weir.CodeUnavailable},
		{errors.Join(failed, weir.ErrExpired), weir.CodeExpired},
	} {
		if got := weir.CodeOf(tt.err); got != tt.want {
			t.Errorf("%v: code %d, want %d", tt.err, got, tt.want)
		}
		seen[tt.want] = true
	}
	if len(seen) != weir.Codes {
		t.Errorf("%d of %d codes are tested", len(seen), weir.Codes)
	}
}
