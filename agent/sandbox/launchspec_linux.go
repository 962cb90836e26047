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

// The files that a supervisor inherits, after the three standard streams of its command.
const (
	selfFD       = 3 + iota // this binary, even when its path is gone or belongs to another file by now
	launchSpecFD            // a launchSpec, to read
	reportFD                // reports, to write
	controlFD               // a byte asks the command to end; end of file kills everything
	bwrapFD                 // the arguments of bubblewrap, which it reads
)

// selfPath is this binary, for a process that has the descriptor.
var selfPath = fmt.Sprintf("/proc/self/fd/%d", selfFD)

// launchSpec tells a supervisor what to start, and how.
type launchSpec struct {
	Tier    Tier
	Argv    []string
	Self    bool // Argv[0] is selfPath, which may be read
	Env     []string
	Dir     string
	Temp    string // a folder for temporary files, removed afterwards
	Network bool
	Umask   fs.FileMode // what the user had before the daemon made its own files private
	Rules   []rule      // of Landlock, with paths as the supervisor sees them
	Places  []place
	Limits  Limits
	Threads uint64   // that the user of the command may have in all, those of other programs included
	Canary  []string // files that the command must not be able to read; for trial starts
}

// place is what was mounted for a command, to be recognized in its view: bubblewrap mounts by name, and
// another command may have replaced what has that name, since it was looked at, by a link to something else.
type place struct {
	Path     string
	Dev, Ino uint64
}

// places identifies what a layout mounts from this machine.
func places(l layout) ([]place, error) {
	var out []place
	for _, path := range slices.Concat(l.read, l.write, l.pins()) {
		if slices.ContainsFunc(l.masks, func(m mask) bool { return m.path == path }) {
			continue // hidden, and so not mounted
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

// identify says what is at a path, without following a link.
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

// verify refuses a view in which something else is mounted.
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

// report is what a supervisor sends: an empty one when everything is in place and the command is about to
// start, and one about its end, or why it could not be started.
type report struct {
	Ended  bool   `json:",omitempty"` // this is the last report: how the command ended
	Failed string `json:",omitempty"` // why it could not be started
	Errno  int    `json:",omitempty"` // the errno behind it, if there is one
	Exit   int    `json:",omitempty"`
	Signal int    `json:",omitempty"`
	CPU    int64  `json:",omitempty"` // ns
	MaxRSS int64  `json:",omitempty"` // bytes, of the largest process
}

// newMemfd is an anonymous file in memory with the given content, for a child to read. A pipe would block
// when the content is larger than its buffer.
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
