//go:build unix

package auth_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimits/weir/internal/serve/auth"
)

// TestOwner checks that a change keeps the owner and the group of the file: otherwise a server that runs as another user
// than the command could not read it, and would keep its tokens. Only root can give a file to another user.
func TestOwner(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	f.add(t, "a", auth.Read, time.Time{})
	f.add(t, "b", auth.Read, time.Time{})
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 1000, 1001
	} else if groups, err := os.Getgroups(); err == nil && len(groups) > 0 {
		gid = groups[len(groups)-1]
	}
	if err := os.Chown(f.path, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := auth.Revoke(f.path, "a"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(f.path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) != uid || int(st.Gid) != gid || info.Mode().Perm() != 0o600 {
		t.Errorf("owner %d:%d, mode %v, want %d:%d", st.Uid, st.Gid, info.Mode(), uid, gid)
	}
}
