package record

import (
	"strconv"

	"github.com/weirlimits/weir/store"
)

// Subject returns the subject of audit events about the limits of a scope.
func (sc Scope) Subject() string {
	switch {
	case sc.Entity != "":
		return "entity:" + sc.Entity
	case sc.Plan != "":
		return "plan:" + sc.Plan
	case sc.Resource != "":
		return "resource:" + sc.Resource
	}
	return "system"
}

// Name names the limits of a scope in an error.
func (sc Scope) Name() string {
	on := " on " + store.ResourceQuoted(sc.Resource)
	switch {
	case sc.Entity != "" && sc.Resource != "":
		return "limits of entity " + strconv.Quote(sc.Entity) + on
	case sc.Entity != "":
		return "default limits of entity " + strconv.Quote(sc.Entity)
	case sc.Plan != "" && sc.Resource != "":
		return "limits of plan " + strconv.Quote(sc.Plan) + on
	case sc.Plan != "":
		return "default limits of plan " + strconv.Quote(sc.Plan)
	case sc.Resource != "":
		return "limits of " + store.ResourceQuoted(sc.Resource)
	}
	return "limits of the system"
}
