package dynamodb

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/weirlimits/weir/store"
)

// Carry implements coalesce.Driver: it makes the planned write and hands out the results. A caller can leave a write that
// the store makes itself while it waits for the answer. It can leave a write that the SDK makes only before it is begun.
func (sh *shard) Carry(ctx context.Context) (done bool, rest time.Duration) {
	b := sh.batch
	var it *item
	var applied bool
	err := b.invalid
	if err == nil {
		if !sh.begin(ctx, b) && ctx.Done() != nil {
			return false, 0
		}
		it, applied, err = sh.send(b)
	}
	if err != nil && invalidWrite(err) {
		if b.invalid = err; ctx.Done() != nil {
			return false, 0 // finding out why takes a call
		}
		err = sh.diagnose(err)
	}
	b.finish()
	sh.s.measures.wrote(len(b.jobs), applied, err)
	if s, ok := b.upkeep.(*split); ok && applied {
		s.after(sh, b)
	}
	sh.lane.Lock()
	defer sh.lane.Unlock()
	sh.batch = nil
	switch {
	case err != nil:
		if !ambiguous(err) {
			sh.count(b.others)
		}
		rest = sh.failed(b, err)
	case applied:
		sh.misses = 0
		sh.learn(b, it, true)
		sh.landed(b, it)
		sh.refuse(b, true)
	default:
		sh.misses++
		sh.learn(b, it, false)
		sh.count(b.others)
		rest = sh.again(b, b.jobs)
	}
	return true, rest
}

// begin sends a batch's write, if that takes no waiting, and waits for its answer. It reports whether that has arrived.
func (sh *shard) begin(ctx context.Context, b *batch) bool {
	if sh.s.wire == nil || b.forgets() || b.upkeep != nil && ctx.Done() != nil { // upkeep may take more calls
		return false
	}
	if b.call == nil {
		b.called = time.Now()
		b.call = sh.s.wire.Begin(sh.written(b), b.called.Add(sh.s.cfg.CallTimeout), once...)
	}
	return b.call != nil && b.call.Wait(ctx)
}

// send makes or completes a batch's write. It returns the item as it now is, and whether the write was applied.
func (sh *shard) send(b *batch) (*item, bool, error) {
	sent := time.Now()
	var attrs map[string]types.AttributeValue
	var meta middleware.Metadata
	var err error
	if b.forgets() {
		var out *dynamodb.DeleteItemOutput
		if out, err = sh.erase(b.upkeep.(*forget)); err == nil {
			meta = out.ResultMetadata
		}
	} else {
		var out *dynamodb.UpdateItemOutput
		if b.call != nil {
			sent = b.called
			out, err = b.call.Answer()
		} else {
			out, err = sh.update(b)
		}
		if err == nil {
			attrs, meta = out.Attributes, out.ResultMetadata
		}
	}
	if err != nil {
		var failed *types.ConditionalCheckFailedException
		if !errors.As(err, &failed) {
			return nil, false, err
		}
		attrs = failed.Item
		sh.s.skew.failed(err, sent)
	} else {
		sh.s.skew.answered(meta, sent)
	}
	it, perr := parseItem(attrs)
	if perr != nil {
		return nil, false, sh.s.damaged(sh.pk, perr)
	}
	return it, err == nil, nil
}

func (sh *shard) update(b *batch) (*dynamodb.UpdateItemOutput, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	return sh.s.cfg.Client.UpdateItem(ctx, sh.written(b).Input(), once...)
}

func (sh *shard) erase(f *forget) (*dynamodb.DeleteItemOutput, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	return sh.s.cfg.Client.DeleteItem(ctx, f.input(sh), once...)
}

// forgets reports whether the batch deletes the item.
func (b *batch) forgets() bool {
	f, ok := b.upkeep.(*forget)
	return ok && !f.blanks(b)
}

// invalidWrite reports whether DynamoDB called a write invalid.
func invalidWrite(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == codeValidation
}

// diagnose determines why DynamoDB called a write invalid. Usually, the item was edited by hand.
func (sh *shard) diagnose(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	var damaged *store.Error
	cause := sh.s.readItems(ctx, []primary{sh.pk}, make(map[primary]*item))
	if errors.As(cause, &damaged) && damaged.Op == "read" {
		return cause
	}
	return err
}
