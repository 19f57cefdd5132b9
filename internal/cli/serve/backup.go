package serve

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/weirlimits/weir/internal/cli/kit"
)

// backupFlags configure copies of a store on disk.
type backupFlags struct {
	Dir   string        `json:"backup"`
	Every time.Duration `json:"backup_every" range:"1m.." default:"1h"`
}

func (f *backupFlags) open(_ context.Context, s *serving) error {
	if f.Dir == "" {
		return nil
	}
	at, err := s.run.StoreAlone()
	if err == nil && !strings.HasPrefix(string(at), "disk:") {
		err = kit.Usagef("--backup is only for a store on disk, not for %q", at)
	}
	return err
}

// start makes the first copy, and then one at each interval. A later one that fails is logged.
func (f *backupFlags) start(ctx context.Context, s *serving) error {
	st, ok := s.run.Opened.(interface {
		Backup(ctx context.Context, dir string) error
	})
	if f.Dir == "" || !ok {
		return nil
	}
	if err := st.Backup(ctx, f.Dir); err != nil {
		return err
	}
	s.tasks = append(s.tasks, func(ctx context.Context) error {
		tick := time.NewTicker(f.Every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if err := st.Backup(ctx, f.Dir); err != nil && ctx.Err() == nil {
				s.log.Error("the store was not copied", slog.Any("error", err))
			}
		}
	})
	return nil
}
