package policy

import (
	"github.com/weirlimits/weir/internal/clock/calendar"
	"github.com/weirlimits/weir/internal/policy/record"
	"github.com/weirlimits/weir/store"
)

// catalogRecord is a record of the catalog, decoded.
type catalogRecord struct {
	exists    bool
	version   uint64 // for one removed through this process, a version that no older write can have
	entity    record.Entity
	group     string // of a resource
	nearLimit []int
	namespace record.Namespace
	cell      *record.Cell // that the store belongs to
	epoch     uint64

	settings
	limitSet
	course *course // nil if the limits neither begin nor end

	// While the store answers, decisions use no record for which one of these is set.
	noted      bool // made from what was written through this process
	unreadable bool // not written by weir, or written by a newer version
}

// settings are stored with limits; known only in the system's record.
type settings struct {
	onUnavailable Mode
	known         bool // only entities that were created may be requested
	plans         bool // the namespace has had plans
	totals        bool // totals may have limits
	phases        bool // the namespace has had limits that begin or end
}

// limitSet is the limits of a scope, and what they have besides what the store knows of them. All targets with the
// limits share it, so that it is not modified once it is made.
type limitSet struct {
	Source   Source
	Manifest string // the manifest that declares the limits
	Limits   []store.Limit

	charges []store.Charge   // of one request; see Policy.Requests
	counts  bool             // some limit counts requests
	enforce []record.Enforce // nil if all are enforced
	terms   []record.Terms   // nil if all are the default
	former  []store.Limit    // the limits for entities outside a percentage; nil if no limit has a former rate
}

// course is what the limits of a scope are in the course of time.
type course struct {
	stages []stage
	// Of a record as it is at a time: how many of its stages have begun after the first, and when this one began and
	// ends; 0 for never.
	passed      int
	last, until int64
	next        calendar.Instant // until, as it is written
}

// stage is the limits of a scope from a time on.
type stage struct {
	from int64
	at   calendar.Instant
	limitSet
}

// set returns the limits of a record that has some.
func (rec *catalogRecord) set() *limitSet {
	if c := rec.course; c != nil {
		return &c.stages[c.passed].limitSet
	}
	return &rec.limitSet
}

// at returns the record as it is at a time, in nanoseconds since the clock's epoch.
func (rec *catalogRecord) at(now int64) *catalogRecord {
	if rec.course == nil {
		return rec
	}
	is, c := *rec, course{stages: rec.course.stages}
	for i := range c.stages {
		st := &c.stages[i]
		if st.from > now {
			c.until, c.next = st.from, st.at
			break
		}
		if is.limitSet = st.limitSet; i > 0 {
			c.passed, c.last = i, st.from
		}
	}
	is.course = &c
	return &is
}

// cached reports whether records of a kind are cached: those that decisions depend on.
func cached(k store.Kind) bool {
	switch k {
	case store.KindEntity, store.KindEntityLimits, store.KindPlanLimits, store.KindResourceLimits, store.KindSystem,
		store.KindNamespace, record.KindShares:
		return true
	default:
		return false
	}
}

// good reports whether decisions may use the record while the store answers.
func (rec *catalogRecord) good() bool { return !rec.noted && !rec.unreadable }

// created reports whether the record is that of an entity that was created. One that cannot be read is.
func (rec *catalogRecord) created() bool {
	return rec.exists && (rec.unreadable || !rec.entity.Created.IsZero())
}

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
	case record.KindShares:
		err = record.Decode(r, &rec.cell)
	default:
		err = rec.decodeLimits(k, r)
	}
	if err != nil {
		return catalogRecord{exists: true, version: r.Version, unreadable: true}, err
	}
	return rec, nil
}

// decodeLimits decodes limits and the settings stored with them.
func (rec *catalogRecord) decodeLimits(k store.Key, r store.Record) error {
	var lr record.Limits
	if err := record.Decode(r, &lr); err != nil {
		return err
	}
	rec.settings = settings{
		Mode(lr.OnUnavailable), lr.Entities == record.KnownEntities, lr.Plans, lr.Totals, lr.Phases,
	}
	rec.nearLimit, rec.group = lr.NearLimit, lr.Group
	var err error
	source := SourceOf(record.ScopeOf(k))
	if rec.limitSet, err = limitSetOf(lr.Limits, source, lr.Managed.Name()); err != nil {
		return record.Unreadable(r, err)
	}
	for _, s := range lr.Stages() {
		set, err := limitSetOf(s.Limits, source, lr.Managed.Name())
		if err != nil {
			return record.Unreadable(r, err)
		}
		if rec.course == nil {
			rec.course = new(course)
		}
		rec.course.stages = append(rec.course.stages, stage{s.From, s.At, set})
	}
	return nil
}

// limitSetOf decodes limits.
func limitSetOf(limits []record.Limit, source Source, manifest string) (set limitSet, err error) {
	set.Source, set.Manifest = source, manifest
	for i, l := range limits {
		valid, err := l.Validate()
		if err != nil {
			return set, err
		}
		set.Limits = append(set.Limits, valid.Stored(false))
		if valid.Enforce != record.EnforceOn && set.enforce == nil {
			set.enforce = make([]record.Enforce, len(limits))
		}
		if set.enforce != nil {
			set.enforce[i] = valid.Enforce
		}
		if terms := valid.Terms(); terms != (record.Terms{}) || set.terms != nil {
			if set.terms == nil {
				set.terms = make([]record.Terms, len(limits))
			}
			set.terms[i] = terms
		}
		if valid.Former != (record.Rate{}) {
			if set.former == nil {
				set.former = make([]store.Limit, len(limits))
			}
			set.former[i] = valid.StoredFormer()
		}
	}
	set.charge()
	return set, nil
}
