//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"rouse/internal/fspath"
)

// Files that every command may read in addition to systemFolders. They are the files of /etc that
// programs need, without keys, settings of other programs, and logs.
var (
	etcFiles = []string{
		"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime", "timezone",
		"locale.alias", "mime.types", "terminfo", "fonts", "gitconfig", "gitattributes", "protocols", "services", "ssl/certs", "ssl/openssl.cnf",
		"ca-certificates", "ca-certificates.conf", "pki/tls/certs", "pki/ca-trust/extracted", "perl", "python3", "magic",
	}
	etcNetwork = []string{"hosts", "resolv.conf", "host.conf", "gai.conf"}
	// tierBSystem is also readable if /proc is that of the machine. It contains files about the
	// machine, not about processes.
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

// mountPoint is a mount in the view of a command. It covers any existing content at its path.
type mountPoint struct {
	path string
	args []string
}

// bubblewrapArgs returns the arguments that create the view of a command.
func bubblewrapArgs(l layout, c Command) []string {
	// --disable-userns: in its own user namespace the command would have capabilities, and access
	// to large parts of the kernel. --new-session: without a controlling terminal the command
	// cannot inject input (TIOCSTI). --as-pid-1: the supervisor is process 1 and reaps orphans
	// itself.
	args := []string{"--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1",
		"--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"}
	if c.Network {
		args = append(args, "--share-net")
	}

	view := append(systemMounts(c), grantedMounts(l)...)
	// bwrap mounts in this order, so parents come before children. For one path the last entry
	// applies.
	slices.SortStableFunc(view, func(a, b mountPoint) int { return strings.Compare(a.path, b.path) })

	for i, m := range view {
		if i+1 == len(view) || view[i+1].path != m.path {
			args = append(args, m.args...)
		}
	}

	for _, m := range l.masks {
		if l.maskVisible(m) && (m.missing || m.folder) {
			// Last, because mount points inside it (paths granted within a mask) could not be
			// created later.
			args = append(args, "--remount-ro", m.path)
		}
	}

	// The root is a tmpfs that bwrap made for mount points. It must not be writable.
	if !slices.Contains(l.write, "/") {
		args = append(args, "--remount-ro", "/")
	}

	return append(args, "--remount-ro", "/dev")
}

// systemMounts returns the mounts that every command has.
func systemMounts(c Command) []mountPoint {
	// A tmpfs is memory that belongs to no process, so enforce does not see it. All tmpfs together
	// get half of the limit.
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
			continue // systems may lack some of them
		}

		if to, err := os.Readlink(path); err == nil && info.Mode().Type() == os.ModeSymlink && slices.Contains(systemFolders, path) {
			view = append(view, mountPoint{path, []string{"--symlink", to, path}}) // for example /bin, which links to usr/bin
			continue
		}
		view = append(view, mountPoint{path, []string{"--ro-bind-try", path, path}})
	}

	return view
}

// grantedMounts returns the mounts for the paths granted to a command and for its masks.
func grantedMounts(l layout) []mountPoint {
	var view []mountPoint
	for _, path := range l.read {
		view = append(view, mountPoint{path, []string{"--ro-bind", path, path}})
	}

	for _, path := range l.write {
		view = append(view, mountPoint{path, []string{"--bind", path, path}})
	}

	for _, path := range l.pins() {
		// Mounted over itself, because the kernel does not rename or remove mount points.
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
			// bwrap mounts with nodev, so this device cannot even be opened.
			view = append(view, mountPoint{m.path, []string{"--ro-bind", "/dev/null", m.path}})
		}
	}

	return view
}

// maskVisible reports whether a mask lies within the command's view.
func (l layout) maskVisible(m mask) bool {
	return m.root != "" || slices.ContainsFunc(slices.Concat(l.read, l.write, systemFolders, systemFiles(true)), func(root string) bool {
		return fspath.Within(m.path, root) || fspath.Within(root, m.path)
	})
}

// tierARules returns the Landlock rules inside the mounts. The view contains only readable files,
// so the rules restrict writing, as a second layer behind the mounts.
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
