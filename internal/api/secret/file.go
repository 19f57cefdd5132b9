package secret

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// ReadFile returns the content of a file that holds a secret. It refuses a file as [Check] does.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the file that a link leads to, such as one that Kubernetes mounts
	if err == nil {
		err = Check(path, info)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// Check refuses a file that other users may read or change. Its group may read it, if that is a group of this process
// or root's. The folder's mode does not matter. On Windows, no file is refused.
func Check(path string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if runtime.GOOS == "windows" || mode&0o027 == 0 && (mode&0o040 == 0 || ownGroup(info)) {
		return nil
	}
	return fmt.Errorf("%s is open to other users (mode %04o): run chmod 600 %s (mounted by Kubernetes: "+
		"defaultMode: 0400)", path, mode, path)
}
