package weir

import (
	"context"

	"github.com/weirlimits/weir/internal/policy/cache"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// viewKey identifies a record of the catalog that the limiter caches.
type viewKey struct {
	space    string
	kind     viewKind
	id       string
	resource string
}

type viewKind byte

const (
	entityView    viewKind = iota // an entity's own record
	limitsView                    // its limits on a resource; its default limits are on DefaultResource
	resourceView                  // a resource's limits
	systemView                    // the namespace's limits and settings
	namespaceView                 // a namespace by name
)

// view is a record of the catalog, decoded.
type view struct {
	exists        bool
	version       uint64 // of the record; for one removed through this process, a version that no older write can have
	entity        entityRecord
	limits        []store.Limit
	enforce       []Enforce     // of the limits; nil if all are enforced
	former        []store.Limit // the limits for entities outside a percentage; nil if no limit has a former rate
	one           *store.Charge // see oneCharge
	source        Source
	manifest      string // the manifest that declares the limits
	onUnavailable OnUnavailable
	nearLimit     Thresholds
	namespace     namespaceRecord
	epoch         uint64

	// While the store answers, decisions use no view for which one of these is set.
	noted      bool // made from what was written through this process
	unreadable bool // not written by weir, or written by a newer version
}

// key returns the key of the record that a view is made from.
func (k viewKey) key() store.Key {
	switch k.kind {
	case entityView:
		return entityKey(k.space, k.id)
	case limitsView:
		return entityLimitsKey(k.space, k.id, k.resource)
	case resourceView:
		return resourceKey(k.space, k.id)
	case systemView:
		return systemKey(k.space)
	default:
		return namespaceKey(k.id)
	}
}

// good reports whether decisions may use the view while the store answers.
func (v view) good() bool { return !v.noted && !v.unreadable }

// loadViews reads views of one namespace in one call to the store.
func (c *core) loadViews(ctx context.Context, keys []viewKey) ([]view, error) {
	wanted := make([]store.Key, len(keys))
	for i, k := range keys {
		wanted[i] = k.key()
	}
	got, err := c.store.Get(ctx, wanted...)
	if err != nil {
		return nil, err
	}
	views := make([]view, len(keys))
	var bad cache.Errors
	for i, k := range keys {
		if views[i], err = k.decode(got.Records[i]); err != nil {
			if bad == nil { // the other records are good
				bad = make(cache.Errors, len(keys))
			}
			bad[i] = err
			if f := c.cfg.Observer.Unreadable; f != nil {
				f(ctx, UnreadableEvent{err})
			}
		}
		views[i].epoch = got.Epoch
	}
	if bad != nil {
		return views, bad
	}
	return views, nil
}

// lastGood returns a view as Config.LastGood knows it, possibly one that is unreadable.
func (c *core) lastGood(k viewKey) (view, bool) {
	if c.cfg.LastGood == nil {
		return view{}, false
	}
	got, ok := c.cfg.LastGood([]store.Key{k.key()})
	if !ok || len(got.Records) != 1 {
		return view{}, false
	}
	v, _ := k.decode(got.Records[0])
	v.epoch = got.Epoch
	return v, true
}

func (k viewKey) decode(r store.Record) (v view, err error) {
	if r.Version == 0 {
		return v, nil
	}
	v.exists, v.version = true, r.Version
	switch k.kind {
	case entityView:
		err = decodeRecord(r, &v.entity)
	case namespaceView:
		err = decodeRecord(r, &v.namespace)
	default:
		err = v.decodeLimits(k, r)
	}
	if err != nil {
		return view{exists: true, version: r.Version, unreadable: true}, err
	}
	v.one = oneCharge(v.limits)
	return v, nil
}

// decodeLimits decodes limits and the settings stored with them.
func (v *view) decodeLimits(k viewKey, r store.Record) error {
	var lr record.Limits
	if err := decodeRecord(r, &lr); err != nil {
		return err
	}
	v.onUnavailable, v.nearLimit = OnUnavailable(lr.OnUnavailable), lr.NearLimit
	for _, l := range lr.Limits {
		valid, bad := l.Validate()
		if bad != nil {
			return unreadable(r, bad)
		}
		v.limits = append(v.limits, valid.Stored(false))
		if valid.Enforce != record.EnforceOn && v.enforce == nil {
			v.enforce = make([]Enforce, len(lr.Limits))
		}
		if v.enforce != nil {
			v.enforce[len(v.limits)-1] = Enforce(valid.Enforce)
		}
		if valid.Former != (record.Rate{}) {
			if v.former == nil {
				v.former = make([]store.Limit, len(lr.Limits))
			}
			v.former[len(v.limits)-1] = valid.StoredFormer()
		}
	}
	if len(v.limits) == 0 {
		return nil
	}
	v.manifest = lr.Managed.Name()
	v.source = map[viewKind]Source{
		limitsView: SourceEntity, resourceView: SourceResource,
		systemView: SourceSystem,
	}[k.kind]
	if k.resource == DefaultResource {
		v.source = SourceEntityDefault
	}
	return nil
}
