package table

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/weirlimits/weir/store"
)

// Metering is what a ledger books. The zero value books all windows of all resources.
type Metering struct {
	store.Retention

	Windows []store.Window // the types of windows; empty: all
	Without []string       // resources that are left out
}

// Metered is what the table records of its ledgers: what they book, and since when resources that were left out are
// booked again.
type Metered struct {
	Windows []store.Window   `json:"windows,omitempty"`
	Without []string         `json:"without,omitempty"`
	Again   map[string]int64 `json:"again,omitempty"`
}

// misses returns why windows that a query asks for are not booked, or nil.
func (m *Metered) misses(q *store.UsageQuery) error {
	resource := q.Sub
	if q.Of == store.OfResource {
		resource = q.ID
	}
	switch {
	case len(m.Windows) > 0 && !slices.Contains(m.Windows, q.Window):
		names := make([]string, len(m.Windows))
		for i, w := range m.Windows {
			names[i] = string(w)
		}
		return fmt.Errorf(
			"%w: %s windows are left out of this table, which has %s ones: see --windows of weir aggregate, or "+
				"--usage-windows of weir aws deploy", store.ErrNoUsage, q.Window, strings.Join(names, " and "),
		)
	case slices.Contains(m.Without, resource):
		return fmt.Errorf(
			"%w: resource %q is left out of this table's usage: see --without of weir aggregate, or "+
				"--usage-without of weir aws deploy", store.ErrNoUsage, resource,
		)
	}
	return nil
}

// MeteredOf returns what the table records of its ledgers. raw is nil if that is only when they began.
func MeteredOf(attrs map[string]types.AttributeValue) (m Metered, raw []byte, err error) {
	m.Again = make(map[string]int64)
	if attrs[AttrValue] == nil {
		return m, nil, nil
	}
	if raw, err = Field(attrs, AttrValue, Binary); err == nil {
		err = json.Unmarshal(raw, &m)
	}
	return m, raw, err
}
