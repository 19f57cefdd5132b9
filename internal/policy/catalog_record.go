package policy

import (
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
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

// cached reports whether records of a kind are cached: those that decisions depend on.
func cached(k store.Kind) bool {
	switch k {
	case store.KindEntity, store.KindEntityLimits, store.KindResourceLimits, store.KindSystem, store.KindNamespace:
		return true
	default:
		return false
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
	if !cached(r.Key.Kind) {
		return nil
	}
	_, err := decode(r.Key, r)
	return err
}

// decode decodes a record of a key.
func decode(k store.Key, r store.Record) (rec catalogRecord, err error) {
	if r.Version == 0 {
		return rec, nil
	}
	rec.exists, rec.version = true, r.Version
	switch k.Kind {
	case store.KindEntity:
		err = record.Decode(r, &rec.entity)
	case store.KindNamespace:
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
func (rec *catalogRecord) decodeLimits(k store.Key, r store.Record) error {
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
	rec.source = map[store.Kind]Source{
		store.KindEntityLimits: SourceEntity, store.KindResourceLimits: SourceResource, store.KindSystem: SourceSystem,
	}[k.Kind]
	if k.Sub == record.DefaultResource {
		rec.source = SourceEntityDefault
	}
	return nil
}
