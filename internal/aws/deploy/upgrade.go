package deploy

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	driver "github.com/weirlimits/weir/store/dynamodb"
)

// SchemaVersion is the version of the table layout that this weir writes.
const SchemaVersion = driver.SchemaVersion

// Migrated is the result of migrating a table's layout.
type Migrated = driver.Migrated

// Migrate migrates only the table's layout to this weir's version, as [Deployer.Upgrade] does. progress may be nil.
func (d *Deployer) Migrate(ctx context.Context, table string, dry bool, progress func(Migrated)) (Migrated, error) {
	return driver.Migrate(ctx, d.cfg.Tables, table, driver.MigrateConfig{DryRun: dry, Progress: progress})
}

// UpgradeRequest is a stack to upgrade to this weir's version.
type UpgradeRequest struct {
	Stack  string
	DryRun bool
	// Replace is as in [Request].
	Replace bool
	// Progress, if not nil, receives the progress of the table's migration.
	Progress func(Migrated)
}

// Upgraded is what an upgrade did, or with DryRun would do.
type Upgraded struct {
	Result
	From     string // the version of the weir that deployed the stack last
	Migrated Migrated
}

// Upgrade upgrades a stack to this weir's version: first its template and functions, which read both layouts, then
// the table's layout. It refuses a stack that a later weir deployed, or whose table requires later clients. If an
// upgrade is interrupted, calling Upgrade again continues it.
func (d *Deployer) Upgrade(ctx context.Context, req UpgradeRequest) (up Upgraded, err error) {
	st, err := d.Stack(ctx, req.Stack)
	if err != nil {
		return up, err
	}
	up.From = st.Version
	if later(st.Version, d.cfg.Version) {
		return up, &Error{
			Op: "upgrade", Stack: st.Name,
			Err: fmt.Errorf("weir %s deployed it, and this is %s", st.Version, d.cfg.Version), Hint: "upgrade weir",
		}
	}
	if st.State != "REVIEW_IN_PROGRESS" {
		sc, err := driver.ReadSchema(ctx, d.cfg.Tables, st.Name)
		if err != nil {
			return up, trouble("upgrade", st.Name, err)
		}
		if sc.Client > driver.SchemaVersion {
			err := fmt.Errorf(
				"the table requires clients that know schema version %d; this weir knows %d", sc.Client,
				driver.SchemaVersion,
			)
			return up, &Error{Op: "upgrade", Stack: st.Name, Err: err, Hint: "upgrade weir"}
		}
	}
	if up.Result, err = d.Deploy(ctx, Request{Stack: st.Name, DryRun: req.DryRun, Replace: req.Replace}); err != nil {
		return up, err
	}
	up.Migrated, err = d.Migrate(ctx, st.Name, req.DryRun, req.Progress)
	return up, trouble("upgrade", st.Name, err)
}

// later reports whether version a is later than b, if both are versions: v1.2.3, without what follows a hyphen.
func later(a, b string) bool {
	x, ok := numbers(a)
	y, ok2 := numbers(b)
	if !ok || !ok2 {
		return false
	}
	for i := range x {
		if x[i] != y[i] {
			return x[i] > y[i]
		}
	}
	return false
}

func numbers(version string) (n [3]int, ok bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
	parts := strings.Split(text, ".")
	if len(parts) != len(n) {
		return n, false
	}
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil {
			return n, false
		}
		n[i] = v
	}
	return n, true
}
