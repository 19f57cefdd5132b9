// Package cell has the commands that manage cells.
package cell

import (
	"cmp"
	"context"
	_ "embed" // the descriptions of the flags
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
	"github.com/weirlimits/weir/internal/cli/term"
	"github.com/weirlimits/weir/internal/fleet/cells"
	"github.com/weirlimits/weir/store"
)

//go:embed fields.txt
var fields string

var _ = api.Describe("cell", fields)

// Cmd returns the command weir cell.
func Cmd(a *kit.Run) *cobra.Command {
	return kit.Group(&cobra.Command{
		Use:   "cell",
		Short: "Manage cells: installations with their own stores that share limits",
		Long: `Cells are installations of weir that each have their own store but share one set of limits: a
limit applies to all cells together. The cells coordinate through a registry in the store that
you pass to these commands; decisions never read it. Start a cell's processes with
weir serve --cell NAME --cells URL.`,
	}, cellJoinCmd(a), cellListCmd(a), cellDrainCmd(a), cellSharesCmd(a))
}

// registry opens the cells' registry, which is kept in the store, and runs f on it.
func registry(
	ctx context.Context, a *kit.Run, how stores.Access, f func(context.Context, cells.Registry) error,
) (err error) {
	st, err := a.OpenStore(how)
	var missing *store.Error
	if errors.Is(err, fs.ErrNotExist) && errors.As(err, &missing) {
		missing.Hint = "check the path, or create a registry here with its first cell: weir cell join CELL"
	}
	if err != nil {
		return err
	}
	defer func() {
		if closed := st.Close(); err == nil {
			err = closed
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, kit.Patience)
	defer cancel()
	return f(ctx, cells.Registry{Catalog: st})
}

func cellJoinCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "join CELL", Short: "Register a cell; it gets a share once one of its processes runs",
		Example: `  weir --store dynamodb://weir-cells?region=eu-west-1 cell join eu-1 --create
  weir serve --store redis://10.0.0.5 --cell eu-1 --cells dynamodb://weir-cells?region=eu-west-1`,
	}, func(ctx context.Context, q *cellJoin) error {
		if err := cells.CheckName(q.Cell); err != nil {
			return kit.Usage(err)
		}
		if q.Create {
			if err := createRegistry(ctx, a); err != nil {
				return err
			}
		}
		return registry(ctx, a, stores.Create, func(ctx context.Context, r cells.Registry) error {
			if err := r.Join(ctx, q.Cell); err != nil {
				return err
			}
			return printCells(ctx, a, r)
		})
	})
}

// createRegistry creates the DynamoDB table of the registry, or completes it. Other stores need no creation.
func createRegistry(ctx context.Context, a *kit.Run) error {
	at, err := a.StoreAlone()
	if err != nil || !strings.HasPrefix(string(at), "dynamodb:") {
		return err
	}
	found, err := stores.Inspect(ctx, at, new(stores.Creation))
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(found, stores.Finding.Bad); i >= 0 {
		f := &found[i]
		return kit.WithCode(fmt.Errorf("create the registry: %s: %s; %s", f.Name, f.Detail, f.Remedy), kit.Unavailable)
	}
	return nil
}

func cellListCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{Use: "list", Short: "List the cells and the share that each may be using"},
		func(ctx context.Context, _ *struct{}) error {
			return registry(ctx, a, stores.Existing, func(ctx context.Context, r cells.Registry) error {
				return printCells(ctx, a, r)
			})
		})
}

// cellKey names a cell.
type cellKey struct {
	Cell string `json:"cell" arg:"CELL"`
}

// cellJoin names a cell that joins.
type cellJoin struct {
	cellKey

	Create bool `json:"create"`
}

// cellDrain is what to do with a cell.
type cellDrain struct {
	cellKey
	Back   bool `json:"back"`
	Remove bool `json:"remove"`
	Gone   bool `json:"gone"`
	Yes    bool `json:"yes" flag:"yes,y"`
}

func cellDrainCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "drain CELL", Short: "Take away a cell's share, and then remove the cell",
		Long: `Takes away a cell's share and gives it to the other cells; send its requests elsewhere first.
--back gives the cell a share again. --remove removes the cell, provided that it has confirmed
that it no longer uses a share. --gone removes it at once, without waiting for confirmation: if
one of its processes is still running, cut off from the registry, the cells together admit more
than the limits.`,
		Example: "  weir cell drain eu-1\n  weir cell drain eu-1 --remove",
	}, func(ctx context.Context, q *cellDrain) error {
		if q.Back && (q.Remove || q.Gone) || q.Remove && q.Gone {
			return kit.Usage(errors.New("use only one of --back, --remove and --gone"))
		}
		if q.Gone {
			err := kit.Confirm(ctx, a, q.Yes,
				"remove cell %s at once, assuming that none of its processes is running", q.Cell)
			if err != nil {
				return err
			}
		}
		return registry(ctx, a, stores.Existing, func(ctx context.Context, r cells.Registry) error {
			var err error
			if q.Remove || q.Gone {
				err = r.Remove(ctx, q.Cell, q.Gone)
			} else {
				err = r.Drain(ctx, q.Cell, q.Back)
			}
			if err != nil {
				return err
			}
			return printCells(ctx, a, r)
		})
	})
}

// cellShares defines how the limits are divided. What is nil stays as it is.
type cellShares struct {
	Mode     *cells.Mode    `json:"mode"`
	Weights  *cells.Weights `json:"weights"`
	Floor    *string        `json:"floor"`
	HalfLife *time.Duration `json:"half_life"`
}

// apply changes settings.
func (q *cellShares) apply(s *cells.Settings) error {
	if q.Mode != nil {
		s.Mode = *q.Mode
	}
	if q.Weights != nil {
		s.Weights = *q.Weights
	}
	if q.Floor != nil {
		percent, err := strconv.ParseInt(strings.TrimSuffix(*q.Floor, "%"), 10, 64)
		if err != nil {
			return fmt.Errorf("floor %q is not a percentage such as 10%%", *q.Floor)
		}
		s.Floor = percent
	}
	if q.HalfLife != nil {
		s.HalfLife = *q.HalfLife
	}
	return nil
}

func cellSharesCmd(a *kit.Run) *cobra.Command {
	return kit.Func(a, kit.Spec{
		Use: "shares", Short: "Show or set how the limits are divided",
		Long: `Shows how the limits are divided among the cells: for all namespaces, and for each namespace
that has its own shares. With flags, sets how they are divided, for all cells.`,
		Example: "  weir cell shares\n  weir cell shares --weights offered --floor 10%",
	}, func(ctx context.Context, q *cellShares) error {
		how := stores.Existing
		if *q != (cellShares{}) {
			how = stores.Create
		}
		given := cells.Settings{}.WithDefaults()
		if err := errors.Join(q.apply(&given), given.Check()); err != nil {
			return kit.Usage(err)
		}
		return registry(ctx, a, how, func(ctx context.Context, r cells.Registry) error {
			if how == stores.Create {
				if err := r.Set(ctx, func(s *cells.Settings) { _ = q.apply(s) }); err != nil { // it was applied above
					return err
				}
			}
			return printShares(ctx, a, r)
		})
	})
}

// cellView is a cell as printed. Shares are fractions of 1.
type cellView struct {
	Cell      string  `json:"cell"`
	State     string  `json:"state"`
	Share     float64 `json:"share"`
	InForce   float64 `json:"in_force"`
	Processes int     `json:"processes"`
	Others    int     `json:"foreign_processes"` // processes of another installation that uses this cell's name
	Offered   float64 `json:"offered"`
	Joined    string  `json:"joined"`
}

var cellColumns = kit.Columns([]kit.Column[cellView]{
	{Name: "cell", Cut: true},
	{Name: "state"},
	{Name: "share", Of: func(c *cellView) any { return kit.Number(inPercent(c.Share)) }},
	{Name: "in force", Of: func(c *cellView) any { return kit.Number(inPercent(c.InForce)) }},
	{Name: "processes"},
	{Name: "offered/s", Of: func(c *cellView) any { return kit.Number(fmt.Sprintf("%.4g", c.Offered)) }},
})

func printCells(ctx context.Context, a *kit.Run, r cells.Registry) error {
	v, err := r.Inspect(ctx)
	if err != nil {
		return err
	}
	views := []cellView{}
	for i := range v.Cells {
		c := &v.Cells[i]
		cv := cellView{
			Cell: c.Name, State: stores.StateOf(c), Share: cells.Fraction(c.Shares.Of(cells.Default)),
			InForce:   cells.Fraction(c.InForce()),
			Processes: len(c.Instances), Others: c.Others, Joined: kit.Instant(c.Joined),
		}
		for _, n := range c.Offered {
			cv.Offered += float64(n) / 1000
		}
		views = append(views, cv)
	}
	return a.Print(views, func() {
		if len(views) == 0 {
			a.Out.Println("no cells")
			return
		}
		cellColumns(a, views, true)
		for _, cv := range views {
			if cv.Others > 0 {
				a.Out.Printf(
					"another installation uses the name %s (processes: %d) and has no share: give it a different "+
						"name\n",
					cv.Cell, cv.Others,
				)
			}
		}
	})
}

// sharesView shows how limits are divided, as printed.
type sharesView struct {
	Leader     string              `json:"leader"`
	Epoch      uint64              `json:"epoch"`
	Mode       cells.Mode          `json:"mode"`
	Weights    cells.Weights       `json:"weights"`
	Floor      int64               `json:"floor_percent"`
	HalfLife   api.Seconds         `json:"half_life"`
	Namespaces []cellNamespaceView `json:"namespaces"`
}

// cellNamespaceView shows how a namespace's limits are divided. The namespace "" stands for all that are not listed.
type cellNamespaceView struct {
	Namespace string             `json:"namespace"`
	Ratio     float64            `json:"over_admission_ratio"`
	Admitted  float64            `json:"admitted_ratio"`
	Shares    map[string]float64 `json:"shares"`
}

func printShares(ctx context.Context, a *kit.Run, r cells.Registry) error {
	v, err := r.Inspect(ctx)
	if err != nil {
		return err
	}
	s := sharesView{
		Leader: v.Leader, Epoch: v.Version.Epoch, Mode: v.Settings.Mode, Weights: v.Settings.Weights,
		Floor: v.Settings.Floor, HalfLife: api.Seconds(v.Settings.HalfLife), Namespaces: []cellNamespaceView{},
	}
	for _, namespace := range v.Namespaces() {
		n := cellNamespaceView{
			Namespace: namespace, Ratio: v.Ratio(namespace), Admitted: v.Admitted(namespace),
			Shares: make(map[string]float64),
		}
		for i := range v.Cells {
			n.Shares[v.Cells[i].Name] = cells.Fraction(v.Cells[i].Shares.Of(namespace))
		}
		s.Namespaces = append(s.Namespaces, n)
	}
	return a.Print(s, func() {
		a.Out.Printf(
			"%s, by %s parts; epoch %d, led by %s\n", s.Mode, s.Weights, s.Epoch, cmp.Or(s.Leader, "no cell"),
		)
		if len(v.Cells) == 0 {
			a.Out.Println("no cells")
			return
		}
		t := &term.Table{Header: []string{"NAMESPACE"}, Cut: []int{0}}
		for i := range v.Cells {
			t.Header = append(t.Header, v.Cells[i].Name)
			t.Right = append(t.Right, i+1)
		}
		t.Header = append(t.Header, "IN FORCE", "ADMITTED")
		t.Right = append(t.Right, len(v.Cells)+1, len(v.Cells)+2)
		for _, n := range s.Namespaces {
			row := []string{n.Namespace}
			if n.Namespace == cells.Default {
				row[0] = "all others"
			}
			for i := range v.Cells {
				row = append(row, inPercent(n.Shares[v.Cells[i].Name]))
			}
			admitted := "within"
			if n.Admitted > 1 {
				admitted = inPercent(n.Admitted)
			}
			t.Row(append(row, inPercent(n.Ratio), admitted)...)
		}
		a.Out.Table(t)
	})
}

// inPercent formats a fraction of 1 as a percentage.
func inPercent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + "%" }
