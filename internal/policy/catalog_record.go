package policy

import (
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// recordKey identifies a record of the catalog that is cached.
type recordKey struct {
	namespace string // its opaque id
	kind      recordKind
	id        string
	resource  string
}

type recordKind byte

const (
	entityRecord    recordKind = iota // an entity's own record
	entityLimits                      // its limits on a resource; its default limits are on record.DefaultResource
	resourceLimits                    // a resource's limits
	systemLimits                      // the namespace's limits and settings
	namespaceRecord                   // a namespace by name
)

// catalogRecord is a record of the catalog, decoded.
type catalogRecord struct {
	exists        bool
	version       uint64 // for one removed through this process, a version that no older write can have
	entity        record.Entity
	limits        []store.Limit
	enforce       []record.Enforce // of the limits; nil if all are enforced
	former        []store.Limit    // the limits for entities outside a percentage; nil if no limit has a former rate
	single        *store.Charge    // see singleCharge
	source        Source
	manifest      string // the manifest that declares the limits
	onUnavailable Mode
	nearLimit     []int
	namespace     record.Namespace
	epoch         uint64

	// While the store answers, decisions use no record for which one of these is set.
	noted      bool // made from what was written through this process
	unreadable bool // not written by weir, or written by a newer version
}

// key returns the store's key of the record.
func (k recordKey) key() store.Key {
	switch k.kind {
	case entityRecord:
		return record.EntityKey(k.namespace, k.id)
	case entityLimits:
		return record.EntityLimitsKey(k.namespace, k.id, k.resource)
	case resourceLimits:
		return record.ResourceKey(k.namespace, k.id)
	case systemLimits:
		return record.SystemKey(k.namespace)
	default:
		return record.NamespaceKey(k.id)
	}
}

// keyOf returns the key under which a record of the store is cached, if it is.
func keyOf(k store.Key) (recordKey, bool) {
	switch k.Kind {
	case store.KindEntity:
		return recordKey{k.Namespace, entityRecord, k.ID, ""}, true
	case store.KindEntityLimits:
		return recordKey{k.Namespace, entityLimits, k.ID, k.Sub}, true
	case store.KindResourceLimits:
		return recordKey{k.Namespace, resourceLimits, k.ID, ""}, true
	case store.KindSystem:
		return recordKey{k.Namespace, systemLimits, "", ""}, true
	case store.KindNamespace:
		return recordKey{kind: namespaceRecord, id: k.ID}, true
	default: // nothing of it is cached
		return recordKey{}, false
	}
}

// good reports whether decisions may use the record while the store answers.
func (rec catalogRecord) good() bool { return !rec.noted && !rec.unreadable }

// charged returns the parent that is charged, too, or "".
func (rec *catalogRecord) charged() string {
	if !rec.entity.Cascade {
		return ""
	}
	return rec.entity.Parent
}

// Check reports why decisions could not use a catalog record, as a [*store.Error]. It returns nil for records of kinds
// that decisions do not depend on.
func Check(r store.Record) error {
	if k, ok := keyOf(r.Key); ok {
		_, err := k.decode(r)
		return err
	}
	return nil
}

func (k recordKey) decode(r store.Record) (rec catalogRecord, err error) {
	if r.Version == 0 {
		return rec, nil
	}
	rec.exists, rec.version = true, r.Version
	switch k.kind {
	case entityRecord:
		err = record.Decode(r, &rec.entity)
	case namespaceRecord:
		err = record.Decode(r, &rec.namespace)
	default:
		err = rec.decodeLimits(k, r)
	}
	if err != nil {
		return catalogRecord{exists: true, version: r.Version, unreadable: true}, err
	}
	rec.single = singleCharge(rec.limits)
	return rec, nil
}

// decodeLimits decodes limits and the settings stored with them.
func (rec *catalogRecord) decodeLimits(k recordKey, r store.Record) error {
	var lr record.Limits
	if err := record.Decode(r, &lr); err != nil {
		return err
	}
	rec.onUnavailable, rec.nearLimit = Mode(lr.OnUnavailable), lr.NearLimit
	for _, l := range lr.Limits {
		valid, bad := l.Validate()
		if bad != nil {
			return record.Unreadable(r, bad)
		}
		rec.limits = append(rec.limits, valid.Stored(false))
		if valid.Enforce != record.EnforceOn && rec.enforce == nil {
			rec.enforce = make([]record.Enforce, len(lr.Limits))
		}
		if rec.enforce != nil {
			rec.enforce[len(rec.limits)-1] = valid.Enforce
		}
		if valid.Former != (record.Rate{}) {
			if rec.former == nil {
				rec.former = make([]store.Limit, len(lr.Limits))
			}
			rec.former[len(rec.limits)-1] = valid.StoredFormer()
		}
	}
	if len(rec.limits) == 0 {
		return nil
	}
	rec.manifest = lr.Managed.Name()
	rec.source = map[recordKind]Source{
		entityLimits: SourceEntity, resourceLimits: SourceResource, systemLimits: SourceSystem,
	}[k.kind]
	if k.resource == record.DefaultResource {
		rec.source = SourceEntityDefault
	}
	return nil
}
