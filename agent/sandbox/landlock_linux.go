//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"rouse/internal/fspath"
)

// access is the access that a rule allows below a path.
type access string

const (
	accessList   access = "list" // only the names in a folder
	accessRead   access = "read" // read and execute
	accessWrite  access = "write"
	accessDevice access = "device"
)

// rule is a Landlock rule. Rules can only allow access.
type rule struct {
	Path   string
	Access access
}

const (
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	fileRights   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

func (a access) rights() uint64 {
	switch a {
	case accessList:
		return unix.LANDLOCK_ACCESS_FS_READ_DIR
	case accessRead:
		return readRights
	case accessWrite:
		return writeRights
	case accessDevice:
		return deviceRights
	}
	return 0
}

// handledRights returns all rights known to a version of Landlock. A handled right is denied unless
// a rule allows it. A right that is not handled is not restricted.
func handledRights(abi int) uint64 {
	const first = 1<<13 - 1 // the 13 rights of version 1
	rights := uint64(first)
	for _, later := range []struct {
		abi   int
		right uint64
	}{
		{2, unix.LANDLOCK_ACCESS_FS_REFER},
		{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE},
		{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
		{9, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX},
	} {
		if abi >= later.abi {
			rights |= later.right
		}
	}

	return rights
}

// landlockABI returns the version of Landlock in this kernel, or 0 if it has none.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// newRuleset creates a ruleset. The caller applies it with restrictThread, or must close it.
func newRuleset(rules []rule, network bool) (fd int, err error) {
	abi := landlockABI()
	if abi == 0 {
		return -1, errors.New("the kernel has no Landlock")
	}

	attr := unix.LandlockRulesetAttr{Handled_access_fs: handledRights(abi)}
	// An older kernel rejects unknown fields (E2BIG), so pass only the fields of its version.
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if abi >= 4 {
		size += unsafe.Sizeof(attr.Handled_access_net)
		if !network {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}

	if abi >= 6 {
		size += unsafe.Sizeof(attr.Scoped)
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}

	ruleset, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("landlock_create_ruleset", errno)
	}

	for _, r := range rules {
		if err := addRule(int(ruleset), r, attr.Handled_access_fs); err != nil {
			return -1, errors.Join(err, unix.Close(int(ruleset)))
		}
	}

	return int(ruleset), nil
}

// addRule adds a rule to a ruleset. It ignores a path that has vanished since the rules were
// computed.
func addRule(ruleset int, r rule, handled uint64) error {
	fd, err := openWithoutLinks(r.Path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: r.Path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()

	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &fs.PathError{Op: "stat", Path: r.Path, Err: err}
	}

	rights := r.Access.rights() & handled
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
	case unix.S_IFLNK: // the target has its own rule if it may be reached
		return nil
	default:
		rights &= fileRights // rights of folders on a file cause EINVAL
	}
	if rights == 0 {
		return nil
	}

	if err := addRuleAt(ruleset, fd, rights); err != nil {
		return &fs.PathError{Op: "landlock_add_rule", Path: r.Path, Err: err}
	}

	return nil
}

// addRuleAt adds a rule for an open file or folder.
func addRuleAt(ruleset, fd int, rights uint64) error {
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	return errnoOf(errno)
}

// openWithoutLinks opens a path that has no links because they were resolved before. It returns an
// error if there is a link on the way. Another command with write access has placed that link, and
// it may lead out of the granted folders. A link at the path itself is opened as a link.
func openWithoutLinks(path string) (fd int, err error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

// restrictThread permanently confines the calling thread. The thread must have no_new_privs.
func restrictThread(ruleset int) error {
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0)
	return os.NewSyscallError("landlock_restrict_self", errnoOf(errno))
}

func errnoOf(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// maxRules is the maximum number of rules of one command. A folder with too many files beside a
// hidden one is rejected, because it would be listed before each command.
const maxRules = 20_000

// landlockRules returns the rules for a layout. Landlock rules cannot deny access. A folder that
// contains a hidden path therefore may only be listed, and each of its other entries has its own
// rule. New files cannot be created in it, because no rule would cover them. It returns an error if
// the layout needs more than maxRules rules.
func (l layout) landlockRules() ([]rule, error) {
	var out []rule
	var excluded []string
	for _, m := range l.masks {
		excluded = append(excluded, m.path)
	}

	add := func(roots []string, a access, inner []string) error {
		for _, root := range roots {
			var err error
			if out, err = expandRules(out, root, a, append(slices.Clone(excluded), inner...)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(l.read, accessRead, nil); err != nil {
		return nil, err
	}

	return out, add(l.write, accessWrite, l.read)
}

func expandRules(rules []rule, path string, a access, excluded []string) ([]rule, error) {
	if len(rules) > maxRules {
		return nil, fmt.Errorf("too much lies beside what must be hidden: %s and others have over %d entries", filepath.Dir(path), maxRules)
	}
	if slices.Contains(excluded, path) {
		return rules, nil
	}
	if !slices.ContainsFunc(excluded, func(hole string) bool { return fspath.Within(hole, path) }) {
		return append(rules, rule{path, a}), nil
	}

	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}

	rules = append(rules, rule{path, accessList})
	for _, entry := range entries {
		if rules, err = expandRules(rules, filepath.Join(path, entry.Name()), a, excluded); err != nil {
			return nil, err
		}
	}

	return rules, nil
}
