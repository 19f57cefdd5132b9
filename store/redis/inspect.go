package redis

import (
	"context"
	"fmt"

	"github.com/weirlimits/weir/store"
	"github.com/weirlimits/weir/store/redis/internal/script"
	"github.com/weirlimits/weir/store/redis/internal/settings"
)

// formatVersion is the version of the layout that this version of weir reads and writes.
const formatVersion = "1"

// Finding is the result of one check by [Inspect].
type Finding struct {
	Name   string // version, eviction, persistence, …
	Detail string // what was found
	Err    error  // an *[store.Error] if the store cannot be used like this
}

// Inspect connects to a server and checks it. It stops at the first failed check, whose finding is the last.
func Inspect(ctx context.Context, cfg Config) []Finding {
	s, err := connect(ctx, cfg)
	if err != nil {
		return []Finding{{Name: "connection", Err: err}}
	}
	defer s.Close()
	return append([]Finding{{Name: "connection", Detail: s.where()}}, s.inspect(ctx)...)
}

func (s *server) inspect(ctx context.Context) (all []Finding) {
	within, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	for _, one := range settings.Read(within, *s.client.Load(), s.cluster, true) {
		if one.Err != nil {
			return append(all, s.finding(settings.Finding{Name: "server", Err: one.Err}))
		}
		for _, f := range one.Check(s.cluster, s.cfg.Volatile) {
			if all = append(all, s.finding(f)); f.Err != nil {
				return all
			}
		}
	}
	f := settings.Finding{Name: "format", Detail: "version " + formatVersion}
	got, err := call(ctx, s, script.Open, []string{s.keys.format()}, []string{formatVersion}, asString)
	switch {
	case err != nil:
		f.Err = err
	case got != formatVersion:
		f.Err = fmt.Errorf("the layout is of version %q, and this weir knows %s", got, formatVersion)
		f.Hint = "upgrade weir"
	}
	return append(all, s.finding(f))
}

// finding returns a finding about the server with its error as a [store.Error].
func (s *server) finding(f settings.Finding) Finding {
	err := f.Err
	switch {
	case err != nil && f.Hint != "":
		err = &store.Error{Op: "open", Key: s.where(), Err: err, Hint: f.Hint}
	case err != nil:
		err = s.trouble("open", "", err)
	}
	return Finding{f.Name, f.Detail, err}
}
