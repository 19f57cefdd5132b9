package dynamodb

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/dynamodb/internal/table"
)

// Carry implements coalesce.Driver: it makes the planned write and hands out the results.
func (sh *shard) Carry() (rest time.Duration) {
	b := sh.batch
	it, applied, err := sh.send(b)
	if err != nil && invalidWrite(err) {
		err = sh.diagnose(err)
	}
	sh.s.measures.wrote(len(b.jobs), applied, err)
	sh.lane.Lock()
	defer sh.lane.Unlock()
	sh.batch = nil
	switch {
	case err != nil:
		if !table.Ambiguous(err) {
			sh.count(b.others)
		}
		rest = sh.failed(b, err)
	case applied:
		sh.misses = 0
		sh.learn(b, it, true)
		sh.landed(b, it)
	default:
		sh.misses++
		sh.learn(b, it, false)
		sh.count(b.others)
		rest = sh.again(b, b.jobs)
	}
	return rest
}

// send makes a batch's write. It returns the item as it now is, and whether the write was applied.
func (sh *shard) send(b *batch) (*item, bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	sent := time.Now()
	var attrs map[string]types.AttributeValue
	var err error
	if b.forgets() {
		err = sh.erase(ctx, b.upkeep.(*forget))
	} else {
		attrs, err = sh.update(ctx, b)
	}
	if err != nil {
		var failed *types.ConditionalCheckFailedException
		if !errors.As(err, &failed) {
			return nil, false, err
		}
		attrs = failed.Item
		sh.s.calls.Skew.Failed(err, sent)
	}
	it, perr := parseItem(attrs)
	if perr != nil {
		return nil, false, sh.s.calls.Damaged(sh.pk, perr)
	}
	return it, err == nil, nil
}

// update writes to the item, and returns it as the write left it.
func (sh *shard) update(ctx context.Context, b *batch) (map[string]types.AttributeValue, error) {
	u := updates.Get().(*update)
	defer updates.Put(u)
	u.reset()
	sh.write(b, u)
	sent := time.Now()
	out, err := sh.s.cfg.Client.UpdateItem(
		ctx, u.input(&sh.s.cfg.Table, sh.keyItem(), sh.s.expressions.of(u)), table.Once...,
	)
	if err != nil {
		return nil, err
	}
	sh.s.calls.Skew.Answered(out.ResultMetadata, sent)
	return out.Attributes, nil
}

func (sh *shard) erase(ctx context.Context, f *forget) error {
	_, err := sh.s.cfg.Client.DeleteItem(ctx, f.input(sh), table.Once...)
	return err
}

// forgets reports whether the batch deletes the item.
func (b *batch) forgets() bool {
	f, ok := b.upkeep.(*forget)
	return ok && !f.blanks(b)
}

// invalidWrite reports whether DynamoDB called a write invalid.
func invalidWrite(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == table.CodeValidation
}

// diagnose determines why DynamoDB called a write invalid. Usually, the item was edited by hand.
func (sh *shard) diagnose(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), sh.s.cfg.CallTimeout)
	defer cancel()
	var damaged *store.Error
	cause := sh.s.readItems(ctx, []table.Key{sh.pk}, make(map[table.Key]*item))
	if errors.As(cause, &damaged) && damaged.Op == "read" {
		return cause
	}
	return err
}
