package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/weirlimits/weir/internal/clock/nearest"
)

// TZData is the version of the time zone database that weir contains. All processes of a version of weir thereby count
// the same windows, whatever their systems have.
const TZData = "2025c"

// The database, as Go ships it in lib/time.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

var archive = sync.OnceValues(func() (*zip.Reader, error) {
	return zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
})

var zones sync.Map // of *time.Location, by name

// zone returns a time zone by its name in the database.
func zone(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	db, err := archive()
	if err != nil {
		return nil, fmt.Errorf("the time zone database: %w", err)
	}
	data, err := fs.ReadFile(db, name)
	if err != nil {
		return nil, fmt.Errorf("the time zone %q is unknown (database %s): %s", name, TZData, remedy(name))
	}
	loc, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("the time zone %q: %w", name, err)
	}
	had, _ := zones.LoadOrStore(name, loc)
	return had.(*time.Location), nil
}

// remedy returns what to write instead of the name of a zone that is unknown.
func remedy(name string) string {
	names := Zones()
	near := nearest.To(name, names)
	if !strings.Contains(near, "/") && !strings.EqualFold(near, name) { // an abbreviation is not like another
		near = ""
	}
	for _, n := range names { // the city alone
		if at := strings.LastIndexByte(n, '/'); near == "" && strings.EqualFold(n[at+1:], name) && n[:at+1] != "Etc/" {
			near = n
		}
	}
	if near != "" {
		return "did you mean " + near + "?"
	}
	return "write a name such as UTC or Europe/Berlin"
}

// Zones returns the names of all time zones, sorted.
func Zones() []string {
	db, err := archive()
	if err != nil {
		return nil
	}
	var names []string
	for _, f := range db.File {
		if !f.FileInfo().IsDir() {
			names = append(names, f.Name)
		}
	}
	return names
}
