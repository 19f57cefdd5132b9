package arch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// floors are the floors, the lowest first, numbered as in docs/contribute/architecture.md: a floor with a letter is
// part of one. A floor has rooms; a room is a pattern of packages, as in matches. A package imports packages of its own
// room and of lower floors, never of a higher one, nor of another room beside it. Tests are exempt.
var floors = []struct {
	name  string
	rooms []string
}{
	// Arithmetic and bytes; the generated gRPC API.
	{"0", []string{"internal/clock/...", "api/..."}},
	// The seam.
	{"1a", []string{"store"}},
	// What drivers share.
	{"1b", []string{"store/internal/...", "store/storetest/...", "internal/batch/..."}},
	{"1c", []string{"store/memory", "store/disk", "store/dynamodb/...", "store/redis/..."}},
	{"2a", []string{"internal/policy/...", "internal/meter/...", "internal/outage/..."}},
	{"2b", []string{"internal/parts/..."}},
	// Decides.
	{"3a", []string{"."}},
	{"3b", []string{"internal/answer", "admin", "retry"}},
	{"4a", []string{"httplimit", "grpclimit", "weirtest", "internal/manifest/...", "internal/fleet/..."}},
	{"4b", []string{"governor/...", "internal/api/..."}},
	// Opens any store.
	{"4c", []string{"store/open"}},
	{"5", []string{"internal/serve/...", "internal/aws/...", "internal/lab/..."}},
	{"6", []string{"internal/cli/...", "cmd/weir-lambda"}},
	{"7", []string{"cmd/weir"}},
}

// kit is the room that tests alone import.
const kit = "internal/testkit/..."

// upward lists the arrows that do not fit the floors yet, "from → to", each with the reason.
var upward = map[string]string{}

// place returns a package's floor and room. Packages of the test kit and of nested modules have none.
func place(pkg string) (floor int, room string) {
	for i, f := range floors {
		for _, room := range f.rooms {
			if matches(room, pkg) {
				return i, room
			}
		}
	}
	return -1, ""
}

// climbs returns the arrows that break the floors, apart from those that are excused, and excuses that are not needed.
func (g graph) climbs(excused map[string]string) []string {
	var found []string
	arrows := make(map[string]bool)
	for _, from := range g.own("...") {
		if matches(kit, from) {
			continue
		}
		floor, room := place(from)
		if floor < 0 {
			found = append(found, from+" is on no floor: give it a room in floors")
			continue
		}
		for _, to := range g[from] {
			below, other := place(to)
			if g.std(to) || below < 0 && !matches(kit, to) && !strings.HasPrefix(to, "internal/") {
				continue // of another module
			}
			arrow := from + " → " + to
			switch {
			case other == room || below >= 0 && below < floor:
			case excused[arrow] != "":
				arrows[arrow] = true
			case matches(kit, to):
				found = append(found, arrow+": the test kit is for tests")
			default:
				found = append(found, fmt.Sprintf("%s: floor %s does not import floor %s", arrow, floors[floor].name, floors[below].name))
			}
		}
	}
	for arrow := range excused {
		if !arrows[arrow] {
			found = append(found, arrow+": strike it from upward, there is no such arrow")
		}
	}
	slices.Sort(found)
	return found
}

func TestFloors(t *testing.T) {
	t.Parallel()
	g := load(t)
	for _, found := range g.climbs(upward) {
		t.Error(found)
	}
	for _, f := range floors {
		for _, room := range f.rooms {
			if len(g.own(room)) == 0 {
				t.Errorf("no package is %q: strike the room from floors", room)
			}
		}
	}
}

func TestFloorsCaught(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		want     int
	}{
		{".", "store", 0},
		{".", "governor", 1},
		{"store", ".", 1},
		{"store/disk", "store/redis", 1},
		{"store/dynamodb", "store/dynamodb/internal/table", 0},
		{"store/dynamodb", "internal/meter", 1},
		{"internal/meter", "internal/policy/record", 1},
		{"internal/policy/a", "internal/policy/record", 0},
		{"internal/serve/httpapi", "internal/lab/load", 1},
		{"internal/lab/load", "internal/cli/kit", 1},
		{"internal/cli/lab", "internal/lab/load", 0},
		{"cmd/weir", "internal/cli", 0},
		{"internal/cli", "internal/testkit/redistest", 1},
		{"internal/cellar", "store", 1},
		{"internal/testkit/redistest", "internal/cli", 0},
	} {
		g := graph{tt.from: {tt.to}, tt.to: {}}
		if matches(kit, tt.from) || matches(kit, tt.to) {
			g[tt.to] = []string{}
		}
		if got := g.climbs(nil); len(got) != tt.want {
			t.Errorf("%s → %s: %q", tt.from, tt.to, got)
		}
		if arrow := tt.from + " → " + tt.to; tt.want == 1 && tt.from != "internal/cellar" {
			if got := g.climbs(map[string]string{arrow: "why"}); len(got) != 0 {
				t.Errorf("excused: %q", got)
			}
		}
	}
	if got := (graph{"store": {}}).climbs(map[string]string{"store → .": "why"}); len(got) != 1 {
		t.Errorf("an excuse that is not needed: %q", got)
	}
}
