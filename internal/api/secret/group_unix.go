//go:build unix

package secret

import (
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// ownGroup reports whether a file's group is one of this process, or root's: systemd gives its credentials to that.
func ownGroup(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	groups, _ := os.Getgroups()
	gid := int(st.Gid)
	return gid == 0 || gid == os.Getegid() || slices.Contains(groups, gid)
}
