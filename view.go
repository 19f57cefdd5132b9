package weir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimits/weir/internal/catalogcache"
	"github.com/weirlimits/weir/store"
)

// viewKey names what the limiter remembers of the catalog as one piece.
type viewKey struct {
	space    string
	kind     viewKind
	id       string
	resource string
}

type viewKind byte

const (
	entityView    viewKind = iota // an entity's own record
	limitsView                    // its limits on a resource, or its default ones
	resourceView                  // a resource's limits
	systemView                    // the namespace's limits and settings
	namespaceView                 // a namespace by name
)

// view is a piece of the catalog, decoded.
type view struct {
	exists        bool
	entity        entityRecord
	limits        []store.Limit
	enforce       []Enforce     // of the limits; nil if all are enforced
	former        []store.Limit // what they are for those whom a percentage leaves out; nil if no limit has one
	one           *store.Charge // see oneCharge
	source        Source
	manifest      string // that declares the limits
	also          bool   // the entity has default limits besides
	onUnavailable Unavailable
	general       Unavailable // what the entity's default limits say of that
	nearLimit     Thresholds
	namespace     namespaceRecord
	epoch         uint64
}

// keys returns the records that a view is made of.
func (k viewKey) keys() []store.Key {
	switch k.kind {
	case entityView:
		return []store.Key{entityKey(k.space, k.id)}
	case limitsView:
		return []store.Key{entityLimitsKey(k.space, k.id, k.resource), entityLimitsKey(k.space, k.id, DefaultResource)}
	case resourceView:
		return []store.Key{resourceKey(k.space, k.id)}
	case systemView:
		return []store.Key{systemKey(k.space)}
	default:
		return []store.Key{namespaceKey(k.id)}
	}
}

// loadViews reads views of one namespace in one call of the store.
func (c *core) loadViews(ctx context.Context, keys []viewKey) ([]view, error) {
	var wanted []store.Key
	for _, k := range keys {
		wanted = append(wanted, k.keys()...)
	}
	began := time.Now()
	got, err := c.store.Get(ctx, wanted...)
	c.observeCall(ctx, "get", began, err)
	if err != nil {
		return nil, err
	}
	views := make([]view, len(keys))
	var bad catalogcache.Errors
	rest := got.Records
	for i, k := range keys {
		n := len(k.keys())
		if views[i], err = k.decode(rest[:n]); err != nil {
			if bad == nil { // the other records are good
				bad = make(catalogcache.Errors, len(keys))
			}
			bad[i] = err
			if f := c.cfg.Observer.Unreadable; f != nil {
				f(ctx, UnreadableEvent{err})
			}
		}
		views[i].epoch = got.Epoch
		rest = rest[n:]
	}
	c.bad.note(keys, bad)
	if bad != nil {
		return views, bad
	}
	return views, nil
}

// lastGood returns a view as Config.LastGood knows it.
func (c *core) lastGood(k viewKey) (view, bool) {
	if c.cfg.LastGood == nil {
		return view{}, false
	}
	keys := k.keys()
	got, ok := c.cfg.LastGood(keys)
	if !ok || len(got.Records) != len(keys) {
		return view{}, false
	}
	v, err := k.decode(got.Records)
	v.epoch = got.Epoch
	return v, err == nil
}

func (k viewKey) decode(records []store.Record) (v view, err error) {
	for i, r := range records {
		if r.Version == 0 {
			continue
		}
		v.exists = true
		switch k.kind {
		case entityView:
			err = decodeRecord(r, &v.entity)
		case namespaceView:
			err = decodeRecord(r, &v.namespace)
		default:
			err = v.decodeLimits(k.kind, r, i == 1)
		}
		if err != nil {
			return v, err
		}
	}
	v.one = oneCharge(v.limits)
	return v, nil
}

// decodeLimits reads limits and what is set with them. Of those of an entity in general only that, if it has others.
func (v *view) decodeLimits(kind viewKind, r store.Record, general bool) error {
	if len(v.limits) > 0 { // whatever is wrong with limits that are passed over
		var passed struct {
			Limits        []json.RawMessage `json:"limits"`
			OnUnavailable Unavailable       `json:"on_unavailable"`
		}
		err := decodeRecord(r, &passed)
		v.also, v.general = len(passed.Limits) > 0, passed.OnUnavailable
		return err
	}
	var lr limitsRecord
	if err := decodeRecord(r, &lr); err != nil {
		return err
	}
	if general {
		v.general = lr.OnUnavailable
	} else {
		v.onUnavailable, v.nearLimit = lr.OnUnavailable, lr.NearLimit
	}
	for _, l := range lr.Limits {
		valid, bad := l.validate()
		if bad != nil {
			return unreadable(r, bad)
		}
		v.limits = append(v.limits, valid.stored(false))
		if valid.Enforce != EnforceOn && v.enforce == nil {
			v.enforce = make([]Enforce, len(lr.Limits))
		}
		if v.enforce != nil {
			v.enforce[len(v.limits)-1] = valid.Enforce
		}
		if valid.Former != (Rate{}) {
			if v.former == nil {
				v.former = make([]store.Limit, len(lr.Limits))
			}
			v.former[len(v.limits)-1] = valid.former().stored(false)
		}
	}
	if len(v.limits) == 0 {
		return nil
	}
	v.manifest = lr.Managed.name()
	v.source = map[viewKind]Source{limitsView: SourceEntity, resourceView: SourceResource, systemView: SourceSystem}[kind]
	if general {
		v.source = SourceEntityDefault
	}
	return nil
}

func decodeRecord(r store.Record, into any) error {
	if err := json.Unmarshal(r.Value, into); err != nil {
		return unreadable(r, err)
	}
	return nil
}

// errUnreadable tells what the store answered, and cannot be used, from no answer.
var errUnreadable = errors.New("unreadable")

func unreadable(r store.Record, err error) error {
	return &StoreError{Op: "read", Key: r.Key.String(), Err: fmt.Errorf("%w: %w", errUnreadable, err), Hint: "the record was not written by weir, or by a newer one"}
}
