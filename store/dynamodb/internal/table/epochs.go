package table

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// epochs remembers the namespaces' epochs as last read. A batch is not a snapshot. Records are therefore stamped with
// the epoch that an earlier read saw, and the batch that reads them refreshes it for the next read.
type epochs struct {
	mu sync.Mutex
	m  map[string]epoch
}

type epoch struct {
	value   uint64
	known   bool
	commits int // our commits to the namespace; a read begun before a commit says nothing about the epoch after it
}

// maxEpochs bounds how many namespaces are remembered.
const maxEpochs = 100_000

func (e *epochs) of(namespace string) epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.m[namespace]
}

// saw records that a read saw value. before is what was known when the read began.
func (e *epochs) saw(namespace string, before epoch, value uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.m[namespace]
	if now.commits == before.commits {
		e.put(namespace, epoch{max(now.value, value), true, now.commits})
	}
}

// raised records that a commit of ours may have raised a namespace's epoch. It must be read again before it is used as
// a stamp.
func (e *epochs) raised(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.m[namespace]
	e.put(namespace, epoch{now.value, false, now.commits + 1})
}

func (e *epochs) put(namespace string, v epoch) {
	if e.m == nil {
		e.m = make(map[string]epoch)
	}
	if _, ok := e.m[namespace]; !ok && len(e.m) >= maxEpochs {
		clear(e.m)
	}
	e.m[namespace] = v
}

// stamp returns the epoch that records read from now on may carry. It reads the table only if no epoch is known: once
// per namespace, and after our own commits.
func (t *Table) stamp(ctx context.Context, namespace string) (epoch, error) {
	e := t.epochs.of(namespace)
	if e.known {
		return e, nil
	}
	key := epochKey(namespace)
	got, err := t.BatchGet(ctx, []Key{key})
	if err != nil {
		return e, err
	}
	e.value, err = t.sawEpoch(namespace, e, got[key])
	return e, err
}

// sawEpoch remembers the epoch that a read returned, and returns it. It is 0 before the first commit.
func (t *Table) sawEpoch(namespace string, before epoch, attrs map[string]types.AttributeValue) (n uint64, err error) {
	if attrs != nil {
		if n, err = Field(attrs, AttrNumber, Unsigned); err != nil {
			return 0, t.Damaged(epochKey(namespace), err)
		}
	}
	t.epochs.saw(namespace, before, n)
	return n, nil
}

var _ store.Epochs = (*Catalog)(nil)

// Epochs implements [store.Epochs]. It costs one read unit per namespace.
func (c *Catalog) Epochs(ctx context.Context, namespaces ...string) ([]uint64, error) {
	if err := c.t.Ready(ctx); err != nil || len(namespaces) == 0 {
		return nil, err
	}
	ctx, cancel := c.t.Within(ctx)
	defer cancel()
	keys, before := make([]Key, len(namespaces)), make([]epoch, len(namespaces))
	for i, ns := range namespaces {
		if err := checkKey("get", store.Key{Namespace: ns, Kind: store.KindSystem}, ""); err != nil {
			return nil, err
		}
		keys[i], before[i] = epochKey(ns), c.t.epochs.of(ns)
	}
	found, err := c.t.BatchGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	ns := make([]uint64, len(namespaces))
	for i, k := range keys {
		if ns[i], err = c.t.sawEpoch(namespaces[i], before[i], found[k]); err != nil {
			return nil, err
		}
	}
	return ns, nil
}
