package stores

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/fleet/cells"
)

// InspectCell checks what the registry of cells holds about the cell whose store is at an address. It changes nothing.
func InspectCell(ctx context.Context, address, registry secret.Address, name string) []Finding {
	st, err := Open(address, Existing)
	if err != nil {
		return nil // the finding about the store has it
	}
	defer st.Close()
	owner, err := cells.Owner(ctx, st)
	if err != nil {
		return []Finding{findingOf("cell", err, "")}
	}
	all := []Finding{ownerFinding(owner, name)}
	reg := st
	if registry != address { // otherwise this process has it open
		if reg, err = Open(registry, Existing); err != nil {
			return append(all, findingOf("registry", err, ""))
		}
		defer reg.Close()
	}
	v, err := cells.Registry{Catalog: reg}.Inspect(ctx)
	if err != nil {
		return append(all, findingOf("registry", err, ""))
	}
	share := int64(-1)
	if owner == name {
		if of, err := cells.Follow(ctx, st, name); err == nil { // otherwise the finding about the cell has it
			share = of.Share(cells.Default).Num
		}
	}
	all = append(all, registered(&v, name, share)...)
	if registry != address { // otherwise the findings about the store have it
		all = append(all, differFinding(&v))
	}
	return all
}

func ownerFinding(owner, name string) Finding {
	f := Finding{Name: "cell's store", OK: owner == name, Detail: "is that of " + name}
	switch {
	case f.OK:
	case owner == "":
		f.Detail = "belongs to no cell: what decides on it uses whole limits"
		f.Remedy = "start its processes with weir serve --cell " + name + " --cells URL"
	default:
		f.Detail = "is that of " + owner
		f.Remedy = "give --cell " + owner + ", or the store of " + name
	}
	return f
}

// registered returns the findings about a cell in the registry. share is what the cell's own store has; -1 if that is
// not known.
func registered(v *cells.View, name string, share int64) []Finding {
	i := slices.IndexFunc(v.Cells, func(c cells.CellView) bool { return c.Name == name })
	if i < 0 {
		return []Finding{{
			Name: "registry", Detail: fmt.Sprintf("knows %d cells, and %s is none of them", len(v.Cells), name),
			Remedy: "weir cell join " + name + ", with --store of the registry",
		}}
	}
	c := &v.Cells[i]
	return []Finding{roleFinding(v, c), shareFinding(c, share), processesFinding(c), splitFinding(v)}
}

// roleFinding reports the cell's state, and whether it leads.
func roleFinding(v *cells.View, c *cells.CellView) Finding {
	f := Finding{Name: "role", OK: true, Detail: fmt.Sprintf("%s, one of %d cells", StateOf(c), len(v.Cells))}
	_, ours := c.Instances[v.Leader]
	switch {
	case v.Leader == "":
		f.OK, f.Detail = false, f.Detail+"; no process leads, so shares do not move"
		f.Remedy = "start a process of any cell: weir serve --cell NAME --cells URL"
	case ours:
		f.Detail += "; one of its processes leads"
	default:
		f.Detail += "; a process of another leads"
	}
	return f
}

// shareFinding compares the share that the cell was given with what its own store has.
func shareFinding(c *cells.CellView, share int64) Finding {
	granted := c.Shares.Of(cells.Default)
	f := Finding{Name: "share", OK: granted > 0, Detail: percent(granted) + " of the limits"}
	switch {
	case c.Draining:
		f.OK, f.Detail = true, f.Detail+", as it is being drained"
	case !f.OK:
		f.Remedy = "it is joining: the other cells must confirm that they use less; see weir cell list"
	case share >= 0 && share != granted:
		f.Detail += ", and its store has " + percent(share)
		f.Remedy = "wait a few seconds; if it stays, see the log of the cell's processes"
	}
	return f
}

func processesFinding(c *cells.CellView) Finding {
	f := Finding{Name: "processes", OK: true, Detail: fmt.Sprintf("%d report to the registry", len(c.Instances))}
	switch {
	case c.Others > 0:
		f.OK = false
		f.Detail += fmt.Sprintf("; %d of another installation use the name, and admit nothing", c.Others)
		f.Remedy = "give those a name of their own: weir cell join"
	case len(c.Instances) == 0 && !c.Draining:
		f.OK = false
		f.Remedy = "start weir serve --cell " + c.Name + " --cells URL, or see why it does not reach the registry"
	}
	return f
}

// splitFinding reports whether the limits are divided: processes that use whole limits show in what all cells admit.
func splitFinding(v *cells.View) Finding {
	f := Finding{Name: "limits", OK: true, Detail: "all cells together admit no more than a limit allows"}
	for _, namespace := range v.Namespaces() {
		if over := v.Admitted(namespace); over > 1 {
			of := namespace
			if of == cells.Default {
				of = "the namespaces without shares of their own"
			}
			f.OK, f.Detail = false, fmt.Sprintf("all cells together admitted %.2f × a limit of %s", over, of)
			f.Remedy = "it passes after a join or an outage; otherwise look for processes that decide on a " +
				"cell's store without --cell"
			break
		}
	}
	return f
}

func percent(share int64) string { return fmt.Sprintf("%.1f %%", 100*cells.Fraction(share)) }

// StateOf returns a cell's state in a word.
func StateOf(c *cells.CellView) string {
	switch {
	case c.Draining && c.InForce() > 0:
		return "draining"
	case c.Draining:
		return "drained"
	case len(c.Instances) == 0 && c.InForce() == 0:
		return "joined"
	case len(c.Instances) == 0, c.Missing && c.Version.Epoch > 0:
		return "missing"
	case c.InForce() == 0:
		return "waiting"
	}
	return "active"
}
