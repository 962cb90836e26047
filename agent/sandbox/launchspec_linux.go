//go:build amd64 || arm64

package sandbox

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// supervisorArg is the only argument of a supervisor.
const supervisorArg = "sandbox-supervisor"

// File descriptors that a supervisor inherits, after the three standard streams of its command.
const (
	selfFD       = 3 + iota // this binary, even if its path is gone or belongs to another file
	launchSpecFD            // file with the launchSpec
	reportFD                // pipe for reports to the daemon
	controlFD               // a byte asks the command to end; end of file kills everything
	bwrapFD                 // arguments for bubblewrap
)

// selfPath is the path of this binary for a process that has the descriptor.
var selfPath = fmt.Sprintf("/proc/self/fd/%d", selfFD)

// launchSpec describes the command that a supervisor starts, and its confinement.
type launchSpec struct {
	Tier    Tier
	Argv    []string
	Self    bool // Argv[0] is selfPath, which may be read
	Env     []string
	Dir     string
	Temp    string // folder for temporary files, removed afterwards
	Network bool
	Umask   fs.FileMode // the user's umask before the daemon made its own files private
	Rules   []rule      // Landlock rules, with paths in the supervisor's view
	Places  []place
	Limits  Limits
	Threads uint64   // limit for all threads of the user, including those of other programs
	Canary  []string // files that the command must not be able to read; for trial starts
}

// place identifies a mounted file or folder in the command's view. bubblewrap mounts by name. Since
// the check, another command may have replaced the name by a link.
type place struct {
	Path     string
	Dev, Ino uint64
}

// places returns the places that a layout mounts from this machine.
func places(l layout) ([]place, error) {
	var out []place
	for _, path := range slices.Concat(l.read, l.write, l.pins()) {
		if slices.ContainsFunc(l.masks, func(m mask) bool { return m.path == path }) {
			continue // hidden, and therefore not mounted
		}

		p, err := identify(path)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	for _, m := range l.masks {
		if m.source == "" {
			continue
		}
		p, err := identify(m.source)
		if err != nil {
			return nil, err
		}
		out = append(out, place{m.path, p.Dev, p.Ino})
	}
	return out, nil
}

// identify returns the place at a path, without following links.
func identify(path string) (place, error) {
	fd, err := openWithoutLinks(path)
	if err != nil {
		return place{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()

	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return place{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return place{path, stat.Dev, stat.Ino}, nil
}

// verify returns an error if a file or folder in the view is not the expected one.
func (s launchSpec) verify() error {
	for _, want := range s.Places {
		got, err := identify(want.Path)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s was replaced while the command was started; try again", want.Path)
		}
	}
	return nil
}

// report is a message of a supervisor. An empty report means that the command is about to start.
// The last report contains the command's end, or the reason why it could not be started.
type report struct {
	Ended  bool   `json:",omitempty"` // last report: the command has ended
	Failed string `json:",omitempty"` // reason why the command could not be started
	Errno  int    `json:",omitempty"` // errno of the failure, or 0
	Exit   int    `json:",omitempty"`
	Signal int    `json:",omitempty"`
	CPU    int64  `json:",omitempty"` // ns
	MaxRSS int64  `json:",omitempty"` // bytes, of the largest process
}

// newMemfd returns an anonymous file in memory with the given content, for a child to read. A pipe
// would block if the content exceeded its buffer.
func newMemfd(name string, write func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}

	f := os.NewFile(uintptr(fd), name)
	err = write(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

func (s launchSpec) memfd() (*os.File, error) {
	return newMemfd("launch-spec", func(w io.Writer) error { return json.NewEncoder(w).Encode(s) })
}
