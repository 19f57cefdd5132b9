package admin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimits/weir/internal/api/secret"
	"github.com/weirlimits/weir/internal/cli/kit"
	"github.com/weirlimits/weir/internal/cli/stores"
)

// backer is the store on disk.
type backer interface {
	Backup(ctx context.Context, dir string) error
}

// copyOf names the directory of a copy.
type copyOf struct {
	Dir string `json:"dir"`
}

// BackupCmd returns the command that copies a store.
func BackupCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "backup DIR", Short: "Copy a store on disk to a directory",
		Long: `Copies a store on disk that no other process has open; an earlier copy is replaced only by
a complete one. While weir serve runs, it copies the store itself: weir serve --backup DIR.
Other stores have their own means, which the error names.`,
		Example: `  weir backup backups/monday
  weir restore backups/monday --replace`,
	}, func(ctx context.Context, q *copyOf) error {
		at, err := r.StoreAlone()
		switch {
		case err != nil:
			return err
		case !strings.HasPrefix(string(at), "disk:"):
			return notOnDisk(at)
		}
		st, err := stores.Open(at, stores.Existing)
		if err != nil {
			return err
		}
		defer st.Close()
		if err := st.(backer).Backup(ctx, q.Dir); err != nil {
			return err
		}
		return r.Print(q, func() { r.Out.Println("copied to " + q.Dir) })
	})
}

// restoring is a copy, and whether it may replace a store.
type restoring struct {
	copyOf

	Replace bool `json:"replace"`
}

// RestoreCmd returns the command that restores a store.
func RestoreCmd(r *kit.Run) *cobra.Command {
	return kit.Func(r, kit.Spec{
		Use: "restore DIR", Short: "Restore a store on disk from a copy",
		Long: `Makes a store on disk from a copy, after it has opened the copy. What was spent since the
copy was made is forgotten. An existing store stays, unless you pass --replace: it is then
moved to the same path with .replaced at its end. The copy stays as it is.`,
		Example: `  weir restore backups/monday
  weir --store disk:/var/lib/weir restore backups/monday --replace`,
	}, func(_ context.Context, q *restoring) error {
		at, err := r.StoreAlone()
		if err != nil {
			return err
		}
		dir, err := stores.Restore(at, q.Dir, q.Replace)
		switch {
		case err != nil:
			return err
		case dir == "":
			return notOnDisk(at)
		}
		return r.Print(q, func() { r.Out.Println("restored " + dir + " from " + q.Dir) })
	})
}

// notOnDisk returns an error that names how a store of another kind is copied.
func notOnDisk(at secret.Address) error {
	remedy := "copy the dump.rdb that BGSAVE writes, or the files of appenddirname, to the folder of a stopped server"
	switch scheme, _, _ := strings.Cut(string(at), ":"); scheme {
	case "dynamodb":
		remedy = "turn on point-in-time recovery (weir doctor --create-table --pitr), restore to a new table with " +
			"aws dynamodb restore-table-to-point-in-time, and complete it with weir doctor --create-table"
	case "memory":
		remedy = "its contents end with the process"
	}
	return kit.Usagef("%s is not on disk: %s", at, remedy)
}
