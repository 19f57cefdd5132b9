package dynamodb

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// epochs remembers the namespaces' epochs as they were read last. Since a batch is no snapshot, the stamp of records
// is the epoch that an earlier read saw, and the batch that reads them refreshes it for the next.
type epochs struct {
	mu sync.Mutex
	m  map[string]epoch
}

type epoch struct {
	value   uint64
	known   bool
	commits int // ours of the namespace: a read that began before one of them does not tell what is known after it
}

// maxEpochs bounds how many namespaces are remembered.
const maxEpochs = 100_000

func (e *epochs) of(namespace string) epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.m[namespace]
}

// saw says that a read that began when before was known saw value.
func (e *epochs) saw(namespace string, before epoch, value uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.m[namespace]
	if now.commits == before.commits {
		e.put(namespace, epoch{max(now.value, value), true, now.commits})
	}
}

// raised says that a commit of ours may have raised a namespace's epoch: it is read anew before it is a stamp.
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

// stamp returns the epoch that records which are read from now on may carry. It asks the table only when none is
// known: once per namespace, and after commits of our own.
func (s *Store) stamp(ctx context.Context, namespace string) (epoch, error) {
	e := s.epochs.of(namespace)
	if e.known {
		return e, nil
	}
	key := epochKey(namespace)
	got, err := s.batchGet(ctx, []primary{key})
	if err != nil {
		return e, err
	}
	e.value, err = s.sawEpoch(namespace, e, got[key])
	return e, err
}

// sawEpoch remembers the epoch that a read brought, and returns it: 0 before the first commit.
func (s *Store) sawEpoch(namespace string, before epoch, attrs map[string]types.AttributeValue) (n uint64, err error) {
	if attrs != nil {
		if n, err = field(attrs, attrNumber, unsigned); err != nil {
			return 0, s.damaged(epochKey(namespace), err)
		}
	}
	s.epochs.saw(namespace, before, n)
	return n, nil
}

var _ store.Epochs = (*Store)(nil)

// Epochs implements [store.Epochs]: one read unit for each.
func (s *Store) Epochs(ctx context.Context, namespaces ...string) ([]uint64, error) {
	if err := s.ready(ctx); err != nil || len(namespaces) == 0 {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	keys, before := make([]primary, len(namespaces)), make([]epoch, len(namespaces))
	for i, ns := range namespaces {
		if err := checkKey("get", store.Key{Namespace: ns, Kind: store.KindSystem}, ""); err != nil {
			return nil, err
		}
		keys[i], before[i] = epochKey(ns), s.epochs.of(ns)
	}
	found, err := s.batchGet(ctx, keys)
	if err != nil {
		return nil, err
	}
	ns := make([]uint64, len(namespaces))
	for i, k := range keys {
		if ns[i], err = s.sawEpoch(namespaces[i], before[i], found[k]); err != nil {
			return nil, err
		}
	}
	return ns, nil
}
