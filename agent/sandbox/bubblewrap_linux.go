//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"rouse/internal/fspath"
)

// What every command may read beside the systemFolders: those files of /etc that programs do not work without. No
// keys, no settings of other programs, no logs.
var (
	etcFiles = []string{
		"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime", "timezone",
		"locale.alias", "mime.types", "terminfo", "fonts", "gitconfig", "gitattributes", "protocols", "services", "ssl/certs", "ssl/openssl.cnf",
		"ca-certificates", "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust/extracted", "perl", "python3", "magic",
	}
	etcNetwork = []string{"hosts", "resolv.conf", "host.conf", "gai.conf"}
	// tierBSystem is readable in addition where /proc is the machine's own: the files about the machine, none
	// about a process.
	tierBSystem = []string{"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/loadavg", "/proc/uptime", "/proc/sys/kernel", "/proc/sys/vm"}
	devices     = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
)

func systemFiles(network bool) []string {
	var out []string
	for _, name := range etcFiles {
		out = append(out, "/etc/"+name)
	}

	if network {
		for _, name := range etcNetwork {
			out = append(out, "/etc/"+name)
		}
	}
	return out
}

// mountPoint is a place in the view of a command, mounted over what is there already.
type mountPoint struct {
	path string
	args []string
}

// bubblewrapArgs are the arguments that build the view of a command.
func bubblewrapArgs(l layout, c Command) []string {
	// --disable-userns: a user namespace of its own would give the command capabilities in it, and with
	// them most of the kernel. --new-session: without a controlling terminal there is none to type into
	// (TIOCSTI). --as-pid-1: the supervisor is process 1 and reaps orphans itself.
	args := []string{"--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1",
		"--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"}
	if c.Network {
		args = append(args, "--share-net")
	}

	view := append(systemMounts(c), grantedMounts(l)...)
	// bwrap mounts in this order, so parents come before children; for one place the last entry counts.
	slices.SortStableFunc(view, func(a, b mountPoint) int { return strings.Compare(a.path, b.path) })

	for i, m := range view {
		if i+1 == len(view) || view[i+1].path != m.path {
			args = append(args, m.args...)
		}
	}

	for _, m := range l.masks {
		if l.maskVisible(m) && (m.missing || m.folder) {
			// Only now: a mount point inside it (something given within a mask) could not be created later.
			args = append(args, "--remount-ro", m.path)
		}
	}

	// The root is a tmpfs that bwrap made for mount points; nothing is to be written there.
	if !slices.Contains(l.write, "/") {
		args = append(args, "--remount-ro", "/")
	}

	return append(args, "--remount-ro", "/dev")
}

// systemMounts are what every command has.
func systemMounts(c Command) []mountPoint {
	// A tmpfs is memory that belongs to no process, so that enforce does not see it: half of the limit in all.
	size := fmt.Sprint(c.Limits.Memory / 4)
	view := []mountPoint{{"/proc", []string{"--proc", "/proc"}}, {"/dev", []string{"--dev", "/dev"}}}
	for _, path := range []string{"/dev/shm", "/tmp"} {
		args := []string{"--size", size, "--tmpfs", path}
		if c.Temp != "" {
			args = []string{"--bind", c.Temp, path}
		}
		view = append(view, mountPoint{path, args})
	}

	for _, path := range slices.Concat(systemFolders, systemFiles(c.Network)) {
		info, err := os.Lstat(path)
		if err != nil {
			continue // not every system has all of them
		}

		if to, err := os.Readlink(path); err == nil && info.Mode().Type() == os.ModeSymlink && slices.Contains(systemFolders, path) {
			view = append(view, mountPoint{path, []string{"--symlink", to, path}}) // such as /bin, which is usr/bin
			continue
		}
		view = append(view, mountPoint{path, []string{"--ro-bind-try", path, path}})
	}

	return view
}

// grantedMounts are what this command has, and what is hidden from it.
func grantedMounts(l layout) []mountPoint {
	var view []mountPoint
	for _, path := range l.read {
		view = append(view, mountPoint{path, []string{"--ro-bind", path, path}})
	}

	for _, path := range l.write {
		view = append(view, mountPoint{path, []string{"--bind", path, path}})
	}

	for _, path := range l.pins() {
		// Mounted over itself: the kernel refuses to rename or remove a mount point.
		view = append(view, mountPoint{path, []string{"--bind", path, path}})
	}

	for _, m := range l.masks {
		if !l.maskVisible(m) {
			continue
		}
		switch {
		case m.source != "":
			view = append(view, mountPoint{m.path, []string{"--ro-bind", m.source, m.path}})
		case m.missing || m.folder:
			view = append(view, mountPoint{m.path, []string{"--perms", "0555", "--size", "4096", "--tmpfs", m.path}})
		default:
			// bwrap mounts with nodev, so that this device cannot even be opened.
			view = append(view, mountPoint{m.path, []string{"--ro-bind", "/dev/null", m.path}})
		}
	}

	return view
}

// maskVisible reports whether a mask lies in anything that the command can see.
func (l layout) maskVisible(m mask) bool {
	return m.root != "" || slices.ContainsFunc(slices.Concat(l.read, l.write, systemFolders, systemFiles(true)), func(root string) bool {
		return fspath.Within(m.path, root) || fspath.Within(root, m.path)
	})
}

// tierARules are Landlock's rules within that view. It shows nothing that may not be read, so that they
// restrict writing alone: a second line behind the mounts.
func tierARules(l layout) []rule {
	rules := []rule{{"/", accessRead}, {"/tmp", accessWrite}, {"/dev/shm", accessWrite}}
	for _, path := range l.write {
		rules = append(rules, rule{path, accessWrite})
	}

	for _, path := range devices {
		rules = append(rules, rule{path, accessDevice})
	}
	return rules
}
