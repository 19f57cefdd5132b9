package cells

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/fleet"
	"github.com/weirlimits/weir/store"
)

// Whole is the whole of a limit, in parts. It is divisible by every number up to 20.
const Whole int64 = 232_792_560

// Default stands for the namespaces that have no share of their own.
const Default = ""

// space is the registry's namespace in its store. Instances are in one namespace per cell, so that cells' beats do not
// wait for each other.
const space = "cells"

// Kinds of records, which are in the registry. The record of [record.SharesKey] is in the cell's own store.
const (
	kindCell     store.Kind = "cell"          // ID: the cell
	kindInstance store.Kind = "cell-instance" // in namespace cells.CELL; ID: the instance
	kindGrants   store.Kind = "cell-grants"
	kindSettings store.Kind = "cell-settings"
)

var (
	grantsKey   = store.Key{Namespace: space, Kind: kindGrants}
	settingsKey = store.Key{Namespace: space, Kind: kindSettings}
)

func cellKey(name string) store.Key {
	return store.Key{Namespace: space, Kind: kindCell, ID: name}
}

func instanceKey(cell, id string) store.Key {
	return store.Key{Namespace: space + "." + cell, Kind: kindInstance, ID: id}
}

// recordKey returns the key of a record of the fleet that agents form: of its grants, or of worker/CELL/INSTANCE.
func recordKey(name string) store.Key {
	if of, ok := strings.CutPrefix(name, fleet.ReportPrefix); ok {
		cell, id, _ := strings.Cut(of, "/")
		return instanceKey(cell, id)
	}
	return grantsKey
}

// Version orders grants.
type Version = fleet.Version

// Shares are parts of [Whole] by namespace.
type Shares = fleet.Shares

// cellRecord is a cell's membership.
type cellRecord struct {
	Birth    string    `json:"birth"` // of this membership: a cell that leaves and joins again gets another
	Joined   time.Time `json:"joined"`
	Draining bool      `json:"draining,omitempty"`
}

// instanceRecord is what an agent writes with each beat.
type instanceRecord struct {
	Birth string  `json:"birth"`           // of the cell's membership
	Store string  `json:"store,omitempty"` // the agent's installation; "": not known to the agent
	Seq   uint64  `json:"seq"`
	Ack   Version `json:"ack"` // nothing older is in use in the cell
	// Beat is the time between two beats, in milliseconds.
	Beat int64 `json:"beat,omitempty"`
	// Thousandths of a request per second, admitted or refused, by namespace.
	Offered map[string]int64 `json:"offered,omitempty"`
	Used    []usedRecord     `json:"used,omitempty"`

	written time.Time // by the clock of its writer; zero: unknown
}

// clocksDiffer is by how much clocks of processes may differ before one that runs is taken for dead in a [View].
const clocksDiffer = time.Minute

// dead reports whether an agent has missed ten beats.
func (r *instanceRecord) dead(now time.Time) bool {
	beat := cmp.Or(time.Duration(r.Beat)*time.Millisecond, time.Second)
	return !r.written.IsZero() && now.Sub(r.written) > 10*beat+clocksDiffer
}

// grants is what the controller writes with each beat, which also renews its lease.
type grants struct {
	fleet.Head

	Settings Settings         `json:"settings"`
	Cells    map[string]*cell `json:"cells,omitempty"`
	// Thousandths of the limits that all cells have admitted, by namespace, if more than the whole.
	Over map[string]int64 `json:"over,omitempty"`
	// Namespaces of which two cells go by different limits.
	Differ []string `json:"differ,omitempty"`
}

// capped reports whether no cell may use more than it does, because the registry has lost what one may be using.
func (g *grants) capped() bool {
	for _, c := range g.Cells {
		if c.Lost != (Version{}) {
			return g.Settings.Mode == Strict
		}
	}
	return false
}

// cell is what one cell is granted.
type cell struct {
	Birth   string  `json:"birth"`
	Version Version `json:"version"` // of the last change
	Shares  Shares  `json:"shares"`
	// Lost is the newest version that the cell may be following and the registry has lost; zero: none.
	Lost Version `json:"lost,omitzero"`
	// Held is the largest share that may still be in use in the cell, if it is more than the granted one.
	Held    Shares `json:"held,omitempty"`
	Missing bool   `json:"missing,omitempty"`
	// Store is the installation that is the cell, and Others how many agents of other ones beat under its name.
	Store  string `json:"store,omitempty"`
	Others int    `json:"others,omitempty"`
}

// sharesRecord is the record that a cell's deciders use.
type sharesRecord struct {
	Cell    string  `json:"cell"`            // this and Birth: see record.Cell
	Store   string  `json:"store,omitempty"` // names this store for as long as it keeps this record
	Birth   string  `json:"birth"`
	Version Version `json:"version"`
	Shares  Shares  `json:"shares"`
	Least   bool    `json:"least,omitempty"` // see policy.Share
	Epoch   uint64  `json:"epoch"`           // raised with each write, even if the store has lost the previous one
	// Valid is how long deciders may use what they have read.
	Valid time.Duration `json:"valid,omitempty"`

	capped bool // of a record to be written: no share may exceed the one that it replaces
}

// read returns a record's content, which is zero if it does not exist, and its version.
func read[T any](ctx context.Context, c store.Catalog, k store.Key) (v *T, version uint64, err error) {
	got, err := c.Get(ctx, k)
	if err != nil {
		return nil, 0, err
	}
	v, err = decode[T](got.Records[0])
	return v, got.Records[0].Version, err
}

func decode[T any](r store.Record) (*T, error) {
	v := new(T)
	if r.Version == 0 {
		return v, nil
	}
	if err := json.Unmarshal(r.Value, v); err != nil {
		return nil, fmt.Errorf("%s is not a record of cells: %w", r.Key, err)
	}
	return v, nil
}

func write(k store.Key, version uint64, v any) store.Write {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // structs of numbers and strings
	}
	return store.Write{Record: store.Record{Key: k, Version: version, Value: text}}
}

// CheckName returns an error for names that a cell cannot have.
func CheckName(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) {
		return fmt.Errorf("the cell's name %q must consist of at most 64 letters, digits, ., _ and -", name)
	}
	return nil
}
