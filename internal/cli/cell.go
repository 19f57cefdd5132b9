package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/cells"
	"github.com/weirlimits/weir/internal/term"
)

func (a *app) cellCmd() *cobra.Command {
	return group(&cobra.Command{
		Use:   "cell",
		Short: "Cells: installations with stores of their own that share limits",
		Long: `Cells are installations of weir with a store each that share one set of limits: a limit is
that of all of them together. The cells meet in a registry, which is in the store that these
commands are given; no decision asks it. A cell's processes are started with
weir serve --cell NAME --cells URL.`,
	}, a.cellJoinCmd(), a.cellListCmd(), a.cellDrainCmd(), a.cellSharesCmd())
}

// registry opens the registry of cells, which is in the store.
func (a *app) registry(how access, f func(cells.Registry) error) (err error) {
	st, err := openStore(a.store, how)
	if err != nil {
		return err
	}
	defer func() {
		if closed := st.Close(); err == nil {
			err = closed
		}
	}()
	return f(cells.Registry{Catalog: st})
}

func (a *app) cellJoinCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "join CELL",
		Short: "Make a name a cell; it has a share once a process of it runs",
		Example: `  weir --store dynamodb://weir-cells?region=eu-west-1 cell join eu-1
  weir serve --store redis://10.0.0.5 --cell eu-1 --cells dynamodb://weir-cells?region=eu-west-1`,
		Args: args("CELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cells.CheckName(args[0]); err != nil {
				return usageError{err}
			}
			return a.registry(create, func(r cells.Registry) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				if err := r.Join(ctx, args[0]); err != nil {
					return err
				}
				return a.printCells(ctx, r)
			})
		},
	}
}

func (a *app) cellListCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the cells, and what each may be admitting",
		Args:  args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.registry(existing, func(r cells.Registry) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				return a.printCells(ctx, r)
			})
		},
	}
}

func (a *app) cellDrainCmd() *cobra.Command {
	var back, remove, gone, yes bool
	cmd := &cobra.Command{
		Use:   "drain CELL",
		Short: "Take a cell's share away, and in the end the cell",
		Long: `Takes a cell's share away and gives it to the others; send its requests elsewhere first. With
--back it has one again. With --remove it is a cell no more, once it has confirmed that it goes
by no share. With --gone it is none at once: nobody waits for it any more, so that more than
the limits is admitted if a process of it still runs, cut off from the registry.`,
		Example: "  weir cell drain eu-1\n  weir cell drain eu-1 --remove",
		Args:    args("CELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if back && (remove || gone) || remove && gone {
				return usageError{errors.New("--back, --remove and --gone exclude each other")}
			}
			if gone {
				if err := a.confirm(cmd.Context(), yes, "take cell %s for gone, with all its processes", args[0]); err != nil {
					return err
				}
			}
			return a.registry(existing, func(r cells.Registry) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				var err error
				if remove || gone {
					err = r.Remove(ctx, args[0], gone)
				} else {
					err = r.Drain(ctx, args[0], back)
				}
				if err != nil {
					return err
				}
				return a.printCells(ctx, r)
			})
		},
	}
	cmd.Flags().BoolVar(&back, "back", false, "give it a share again")
	cmd.Flags().BoolVar(&remove, "remove", false, "end its membership, if it goes by no share any more")
	cmd.Flags().BoolVar(&gone, "gone", false, "end its membership, since none of its processes runs any more")
	return yesFlag(cmd, &yes)
}

func (a *app) cellSharesCmd() *cobra.Command {
	var mode, weights, floor string
	var halfLife time.Duration
	cmd := &cobra.Command{
		Use:   "shares",
		Short: "Show how the limits are divided, or set how they are to be",
		Long: `Shows how the limits are divided among the cells: for all namespaces, and for each that has
shares of its own. With flags it sets, for all cells, how they are to be divided.`,
		Example: "  weir cell shares\n  weir cell shares --weights offered --floor 10%",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed := cmd.Flags().Changed
			how := existing
			set := func(*cells.Settings) {}
			if changed("mode") || changed("weights") || changed("floor") || changed("half-life") {
				percent, err := strconv.ParseInt(strings.TrimSuffix(floor, "%"), 10, 64)
				if err != nil {
					return usageError{fmt.Errorf("floor %q is not a percentage such as 10%%", floor)}
				}
				how = create
				set = func(s *cells.Settings) {
					if changed("mode") {
						s.Mode = cells.Mode(mode)
					}
					if changed("weights") {
						s.Weights = cells.Weights(weights)
					}
					if changed("floor") {
						s.Floor = percent
					}
					if changed("half-life") {
						s.HalfLife = halfLife
					}
				}
				given := cells.Settings{}.WithDefaults()
				if set(&given); given.Check() != nil {
					return usageError{given.Check()}
				}
			}
			return a.registry(how, func(r cells.Registry) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				if how == create {
					if err := r.Set(ctx, set); err != nil {
						return err
					}
				}
				return a.printShares(ctx, r)
			})
		},
	}
	cmd.Flags().StringVar(&mode, "mode", "strict", "`MODE`: strict, never more than the limits, or available, raised shares count at once")
	cmd.Flags().StringVar(&weights, "weights", "equal", "divide `BY`: equal parts, or what is offered")
	cmd.Flags().StringVar(&floor, "floor", "10%", "`PERCENTAGE` that is divided equally in any case, by offered")
	cmd.Flags().DurationVar(&halfLife, "half-life", 30*time.Second, "`DURATION` after which a change of what is offered counts for half")
	return cmd
}

// cellView is a cell as it is printed. Shares are of 1.
type cellView struct {
	Cell      string  `json:"cell"`
	State     string  `json:"state"`
	Share     float64 `json:"share"`
	InForce   float64 `json:"in_force"`
	Processes int     `json:"processes"`
	Others    int     `json:"foreign_processes"` // of another installation that uses the cell's name
	Offered   float64 `json:"offered"`
	Joined    string  `json:"joined"`
}

func (a *app) printCells(ctx context.Context, r cells.Registry) error {
	v, err := r.Look(ctx)
	if err != nil {
		return err
	}
	views := []cellView{}
	for i := range v.Cells {
		c := &v.Cells[i]
		cv := cellView{Cell: c.Name, State: stateOf(c), Share: part1(c.Shares.Of(cells.Default)), InForce: part1(c.InForce()), Processes: len(c.Instances), Others: c.Others, Joined: instant(c.Joined)}
		for _, n := range c.Offered {
			cv.Offered += float64(n) / 1000
		}
		views = append(views, cv)
	}
	return a.print(views, func() {
		if len(views) == 0 {
			a.out.Println("no cells")
			return
		}
		t := &term.Table{Header: []string{"CELL", "STATE", "SHARE", "IN FORCE", "PROCESSES", "OFFERED/S"}, Right: []int{2, 3, 4, 5}, Cut: []int{0}}
		for _, cv := range views {
			t.Row(cv.Cell, cv.State, inPercent(cv.Share), inPercent(cv.InForce), strconv.Itoa(cv.Processes), fmt.Sprintf("%.4g", cv.Offered))
		}
		a.out.Table(t)
		for _, cv := range views {
			if cv.Others > 0 {
				a.out.Printf("another installation uses the name %s (processes: %d) and has no share: give it a name of its own\n", cv.Cell, cv.Others)
			}
		}
	})
}

func stateOf(c *cells.CellView) string {
	switch {
	case c.Draining && c.InForce() > 0:
		return "draining"
	case c.Draining:
		return "drained"
	case len(c.Instances) == 0 && c.InForce() == 0:
		return "joined"
	case c.Missing && c.Version.Epoch > 0:
		return "missing"
	case c.InForce() == 0:
		return "waiting"
	}
	return "active"
}

// sharesView is how limits are divided, as it is printed.
type sharesView struct {
	Leader     string              `json:"leader"`
	Epoch      uint64              `json:"epoch"`
	Mode       cells.Mode          `json:"mode"`
	Weights    cells.Weights       `json:"weights"`
	Floor      int64               `json:"floor_percent"`
	HalfLife   seconds             `json:"half_life"`
	Namespaces []cellNamespaceView `json:"namespaces"`
}

// cellNamespaceView is how a namespace's limits are divided. The namespace "" stands for those that are not named.
type cellNamespaceView struct {
	Namespace string             `json:"namespace"`
	Ratio     float64            `json:"over_admission_ratio"`
	Admitted  float64            `json:"admitted_ratio"`
	Shares    map[string]float64 `json:"shares"`
}

func (a *app) printShares(ctx context.Context, r cells.Registry) error {
	v, err := r.Look(ctx)
	if err != nil {
		return err
	}
	s := sharesView{
		Leader: v.Leader, Epoch: v.Version.Epoch, Mode: v.Settings.Mode, Weights: v.Settings.Weights,
		Floor: v.Settings.Floor, HalfLife: seconds(v.Settings.HalfLife), Namespaces: []cellNamespaceView{},
	}
	for _, namespace := range v.Namespaces() {
		n := cellNamespaceView{Namespace: namespace, Ratio: v.Ratio(namespace), Admitted: v.Admitted(namespace), Shares: make(map[string]float64)}
		for i := range v.Cells {
			n.Shares[v.Cells[i].Name] = part1(v.Cells[i].Shares.Of(namespace))
		}
		s.Namespaces = append(s.Namespaces, n)
	}
	return a.print(s, func() {
		leader := s.Leader
		if leader == "" {
			leader = "nobody"
		}
		a.out.Printf("%s, by %s parts; epoch %d, led by %s\n", s.Mode, s.Weights, s.Epoch, leader)
		if len(v.Cells) == 0 {
			a.out.Println("no cells")
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
		a.out.Table(t)
	})
}

// part1 returns a share as a part of 1.
func part1(share int64) float64 { return float64(share) / float64(cells.Whole) }

// inPercent writes a part of 1.
func inPercent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + "%" }
