//go:build unix

package auth

import (
	"io/fs"
	"os"
	"syscall"
)

// own gives a file to the owner and the group of another.
func own(f *os.File, like fs.FileInfo) error {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}
